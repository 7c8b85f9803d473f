-- beat: what queues have to tell a worker that has just given a sign of life.
-- ARGV[2] worker, ARGV[3] 1 to ask whether it holds something; then for each queue: count, and for each
--   report of progress task id, entry, the time of its claim or empty, the progress as JSON
-- A queue with a key of another type reports nothing: the worker's other runs must not end because of it.
-- returns for each queue {1 when it holds something, 1 when the queue is paused, ids of tasks whose cancellation was
--   asked for while they run ...}
local worker, is_asked, at, reply = ARGV[2], ARGV[3] == '1', 4, {}
for k = 1, #KEYS do
  local queue, count = KEYS[k], tonumber(ARGV[at])
  for report = at + 1, at + count * 4, 4 do
    local id, entry = ARGV[report], ARGV[report + 1]
    local record = redis.pcall('HGET', queue .. 'd', id)
    if record and not record.err and stands_under(record, entry)
      and is_held_since(queue, sub(record, #entry + 3, #entry + 3), entry, tonumber(ARGV[report + 2])) then
      redis.pcall('HSET', queue .. 'g', id, ARGV[report + 3])
    end
  end
  at = at + 1 + count * 4
  local answer, holds = redis.pcall('HKEYS', queue .. 'cr'), 0
  if answer.err then answer = {} end
  for lane = 0, 7 do
    if is_asked and holds == 0 and call('EXISTS', queue .. 's:' .. lane) == 1 then
      holds = #held_in(queue, lane, '-', '+', 1, worker)
    end
  end
  local paused = redis.pcall('HGET', queue .. 'st', 'paused')
  table.insert(answer, 1, type(paused) == 'string' and 1 or 0)
  table.insert(answer, 1, holds)
  reply[k] = answer
end
return reply
