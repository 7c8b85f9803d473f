-- forget_queue: take a queue off the record, unless a write was announced there. KEYS[1] the stem of the fleet.
-- ARGV[2] queue, ARGV[3] the number up to which announcements are known
-- Numbers of announcements never go back: where the queue has the highest, `~` takes it over, which is no queue's name.
-- returns 1 when it was taken off the record, else 0
local fleet, queue = KEYS[1], ARGV[2]
local number = call('ZSCORE', fleet .. 'touched', queue)
if number and tonumber(number) > tonumber(ARGV[3]) then return 0 end
call('SREM', fleet .. 'queues', queue)
local highest = call('ZREVRANGE', fleet .. 'touched', 0, 0, 'WITHSCORES')
call('ZREM', fleet .. 'touched', queue)
if highest[1] == queue then call('ZADD', fleet .. 'touched', highest[2], '~') end
return 1
