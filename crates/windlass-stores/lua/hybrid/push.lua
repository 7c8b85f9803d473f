-- push: puts references into the lists of their lanes, and wakes who waits for their queues; notes which rows are gone.
-- KEYS[1] stem    ARGV references    returns how many
local GONE_MS, GONE_MAX = 86400000, 100000
local queues, rests, is_some_gone = {}, rests_to_come(), false
for i = 1, #ARGV do
  if size_of(ARGV[i]) == 0 then
    call('ZADD', stem .. 'gone', now_ms(), row_of(ARGV[i]))
    is_some_gone = true
  else
    call('ZREM', stem .. 'gone', row_of(ARGV[i]))
    put(ARGV[i])
    local place = #rests > 0 and end_of(ARGV[i])
    for _, rest in ipairs(rests) do
      if string.sub(rest, 1, #place) == place then
        call('ZREM', stem .. 'rests', rest)
      end
    end
    queues[queue_of(ARGV[i])] = true
  end
end
for queue in pairs(queues) do
  ring(queue)
end
-- Rows are noted for as long as most references wait, and only so many; of the others the ledger says that they are gone.
if is_some_gone then
  call('ZREMRANGEBYSCORE', stem .. 'gone', '-inf', now_ms() - GONE_MS)
  call('ZREMRANGEBYRANK', stem .. 'gone', 0, -GONE_MAX - 1)
  call('PEXPIRE', stem .. 'gone', GONE_MS)
end
return #ARGV
