-- order_worker: keep an order for a worker until its next beat. KEYS[1] the stem of the fleet.
-- ARGV[2] worker, ARGV[3] r run, p pause, d drain, ARGV[4] what to tell others of it. returns 1, or 0 when it is unknown or gone
local fleet, worker = KEYS[1], ARGV[2]
local known = call('HGET', fleet .. 'workers', worker)
if not known or take('>I6', known, 19) > 0 then return 0 end
call('HSET', fleet .. 'workers', worker, sub(known, 1, 24) .. ARGV[3] .. sub(known, 26))
call('PUBLISH', fleet .. 'orders', ARGV[4])
return 1
