-- touch: put queues on record, and note that something is about to be written in them. KEYS[1] the stem of the fleet.
-- ARGV[2]… queues
-- `touched` has each queue under a number that only grows; who knows a number reads what was touched since.
-- returns the number
local fleet = KEYS[1]
local last = call('ZREVRANGE', fleet .. 'touched', 0, 0, 'WITHSCORES')[2]
local number = string.format('%.0f', (tonumber(last) or 0) + 1)
for i = 2, #ARGV do
  call('SADD', fleet .. 'queues', ARGV[i])
  call('ZADD', fleet .. 'touched', number, ARGV[i])
end
return tonumber(number)
