-- register: take a worker's sign of life. KEYS[1] the stem of the fleet.
-- ARGV[2] worker, ARGV[3] its card, ARGV[4] ms that its leases are good for from now, ARGV[5] a name
--   for these data, should they have none yet
-- A worker is `<started (6)><beat (6)><lease until (6)><gone since (6)><order: r p d><card>`.
-- returns {time, order, name of these data}, or 0 for a worker that is gone
local fleet, worker = KEYS[1], ARGV[2]
local known = call('HGET', fleet .. 'workers', worker)
local started, order = now, 'r'
if known then
  if take('>I6', known, 19) > 0 then return 0 end
  started, order = take('>I6', known, 1), sub(known, 25, 25)
end
local until_ms = math.min(now + tonumber(ARGV[4]), LATEST)
call('HSET', fleet .. 'workers', worker, pack('>I6I6I6I6', started, now, until_ms, 0) .. order .. ARGV[3])
call('ZADD', fleet .. 'leases', until_ms, worker)
call('SET', fleet .. 'born', ARGV[5], 'NX')
return { now, order, call('GET', fleet .. 'born') }
