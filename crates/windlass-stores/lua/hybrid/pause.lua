-- pause: keeps references of queues from being taken, or lets them be taken again.
-- KEYS[1] stem    ARGV for each queue: its number, 1 if it is paused or 0    returns nothing
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '1' then
    call('SADD', stem .. 'paused', ARGV[i])
  elseif call('SREM', stem .. 'paused', ARGV[i]) == 1 then
    ring(ARGV[i])
  end
end
