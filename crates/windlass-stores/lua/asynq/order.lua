-- order: have a queue run or pause.
-- ARGV[2] 1 to pause it, ARGV[3] the channel of orders to workers, ARGV[4] the message about a pause
local queue = KEYS[1]
if ARGV[2] == '1' then
  call('SETNX', queue .. 'paused', number(second))
  call('PUBLISH', ARGV[3], ARGV[4])
else
  call('DEL', queue .. 'paused')
  ring(queue)
end
return 1
