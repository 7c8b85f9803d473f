-- change: note that the cancellation of a task that runs was asked for; its place stays as it is.
-- ARGV from 2, for each task: id, how its record begins, the new record without its entry
-- returns {1 done | 0 no longer as it was, ...}
local queue, reply = KEYS[1], {}
for at = 2, #ARGV, 3 do
  local id, before, after = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local record = call('HGET', queue .. 'd', id)
  local head = record and sub(record, 1, #before) == before and head_of(record)
  local done = 0
  if head and state_of(record, head) == 'p' then
    local entry, lane = sub(record, 1, head - 2), sub(record, head + 1, head + 1)
    if held_in(queue, lane, entry, entry, 1)[1] then
      call('HSET', queue .. 'd', id, entry .. ' ' .. after)
      call('HSET', queue .. 'cr', id, entry)
      done = 1
    end
  end
  reply[#reply + 1] = done
end
return reply
