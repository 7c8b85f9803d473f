-- duty: let a leader begin a piece of upkeep. KEYS[1] the stem of the fleet.
-- ARGV[2] its term; ARGV[3] `expire` to declare workers lost whose lease is over, `tend` to forget those
--   that have been gone for longer than ARGV[4] ms, else empty
-- returns {time, when the next lease is over or '', workers that may still hold tasks, 1 when there are more to
--   forget}, or 0 when the term is stale
local fleet, term, has_more = KEYS[1], ARGV[2], 0
local AT_ONCE = 1000
local highest = call('HGET', fleet .. 'lead', 'term')
if highest and tonumber(highest) > tonumber(term) then return 0 end
if highest ~= term then call('HSET', fleet .. 'lead', 'term', term) end
if ARGV[3] == 'expire' then
  local lost = call('ZRANGEBYSCORE', fleet .. 'leases', '-inf', now, 'LIMIT', 0, AT_ONCE)
  for i = 1, #lost do
    local known = call('HGET', fleet .. 'workers', lost[i])
    if known then
      call('HSET', fleet .. 'workers', lost[i], sub(known, 1, 18) .. pack('>I6', now) .. sub(known, 25))
    end
    call('ZREM', fleet .. 'leases', lost[i])
    call('ZADD', fleet .. 'gone', now, lost[i])
    call('SADD', fleet .. 'unclean', lost[i])
  end
elseif ARGV[3] == 'tend' then
  local old = call('ZRANGEBYSCORE', fleet .. 'gone', '-inf', now - tonumber(ARGV[4]) - 1, 'LIMIT', 0, AT_ONCE)
  local forgotten = 0
  for i = 1, #old do
    if call('SISMEMBER', fleet .. 'unclean', old[i]) == 0 then
      call('HDEL', fleet .. 'workers', old[i])
      forgotten = forgotten + call('ZREM', fleet .. 'gone', old[i])
    end
  end
  has_more = #old == AT_ONCE and forgotten > 0 and 1 or 0
end
local next_over = call('ZRANGE', fleet .. 'leases', 0, 0, 'WITHSCORES')[2]
return { now, next_over or '', call('SMEMBERS', fleet .. 'unclean'), has_more }
