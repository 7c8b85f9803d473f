-- order: have a queue run or pause. ARGV[2] 1 to pause it
local queue = KEYS[1]
if ARGV[2] == '1' then
  call('SETNX', queue .. 'paused', number(second))
else
  call('DEL', queue .. 'paused')
  ring(queue)
end
return 1
