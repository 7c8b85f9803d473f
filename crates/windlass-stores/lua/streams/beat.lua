-- beat: what a queue has to tell a worker that has just given a sign of life.
-- ARGV[2] worker; then for each report of progress: task id, entry, the progress as JSON
-- returns the ids of tasks whose cancellation was asked for while they run
local queue = KEYS[1]
for at = 3, #ARGV, 3 do
  local id, own = ARGV[at], ARGV[at + 1] .. ' p'
  local record = call('HGET', queue .. 'd', id)
  if record and sub(record, 1, #own) == own then
    call('HSET', queue .. 'g', id, ARGV[at + 2])
  end
end
return call('HKEYS', queue .. 'cr')
