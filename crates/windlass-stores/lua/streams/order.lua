-- order: have a queue run or pause.
-- ARGV[2] 1 to pause it, ARGV[3] the channel of orders to workers, ARGV[4] the message about a pause
local queue = KEYS[1]
-- A queue that was given an order is never forgotten.
call('HSET', queue .. 'mend', 'ordered', '1')
if ARGV[2] == '1' then
  call('HSET', queue .. 'st', 'paused', '1')
  call('PUBLISH', ARGV[3], ARGV[4])
else
  call('HDEL', queue .. 'st', 'paused')
  for lane = 0, 7, 2 do ring(queue, lane) end
end
return 1
