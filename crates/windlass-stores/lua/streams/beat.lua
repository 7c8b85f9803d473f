-- beat: what a queue has to tell a worker that has just given a sign of life.
-- ARGV[2] worker; then for each report of progress: task id, entry, the time of its claim or empty, the
--   progress as JSON
-- returns the ids of tasks whose cancellation was asked for while they run
local queue = KEYS[1]
for at = 3, #ARGV, 4 do
  local id, entry = ARGV[at], ARGV[at + 1]
  local record = call('HGET', queue .. 'd', id)
  if record and stands_under(record, entry)
    and is_held_since(queue, sub(record, #entry + 3, #entry + 3), entry, tonumber(ARGV[at + 2])) then
    call('HSET', queue .. 'g', id, ARGV[at + 3])
  end
end
return call('HKEYS', queue .. 'cr')
