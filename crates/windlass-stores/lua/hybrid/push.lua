-- push: puts references into the lists of their lanes, and wakes who waits for their queues; notes which rows are gone.
-- KEYS[1] stem    ARGV references    returns how many
local queues, rests = {}, rests_to_come()
for i = 1, #ARGV do
  if size_of(ARGV[i]) == 0 then
    call('SADD', stem .. 'gone', row_of(ARGV[i]))
    -- For as long as most references wait; after that the ledger says so.
    call('EXPIRE', stem .. 'gone', 86400)
  else
    call('SREM', stem .. 'gone', row_of(ARGV[i]))
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
return #ARGV
