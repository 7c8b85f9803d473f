-- leave: end a worker for ever. KEYS[1] the stem of the fleet; ARGV[2] worker
-- returns 1, or 0 when nobody knows it
local fleet, worker = KEYS[1], ARGV[2]
local known = call('HGET', fleet .. 'workers', worker)
if not known then return 0 end
if take('>I6', known, 19) == 0 then
  call('HSET', fleet .. 'workers', worker, sub(known, 1, 18) .. pack('>I6', now) .. sub(known, 25))
  call('ZREM', fleet .. 'leases', worker)
  call('ZADD', fleet .. 'gone', now, worker)
end
call('SADD', fleet .. 'unclean', worker)
return 1
