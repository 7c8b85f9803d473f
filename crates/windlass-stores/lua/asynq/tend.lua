-- tend: a queue's own upkeep: unique locks whose time is over, marks of lost workers.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {locks freed, 1 when more are over}, or 0: the term is stale
local HOUR_MS = 3600000
local queue, limit = KEYS[1], tonumber(ARGV[3])
local own = 'wl:' .. queue
if not is_current(own, ARGV[2]) then return 0 end
local over = call('ZRANGEBYSCORE', own .. 'ut', '-inf', now, 'LIMIT', 0, limit)
for i = 1, #over do
  local until_ms, id = lock_of(queue, over[i])
  if until_ms and until_ms > 0 and until_ms <= now then free_lock(queue, over[i], id) end
  call('ZREM', own .. 'ut', over[i])
end
call('ZREMRANGEBYSCORE', own .. 'lost', '-inf', now - HOUR_MS - 1)
return { #over, call('ZCOUNT', own .. 'ut', '-inf', now) > 0 and 1 or 0 }
