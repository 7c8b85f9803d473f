-- recover: tasks whose lease is over for so long that nobody can hold them any more, whoever wrote it.
-- ARGV[2] the leader's term, ARGV[3] at most
-- returns {time, tasks as they stand ...}, or 0: the term is stale
local queue, reply = KEYS[1], { now }
if not is_current('wl:' .. queue, ARGV[2]) then return 0 end
call('LLEN', queue .. 'active')
local over = call('ZRANGEBYSCORE', queue .. 'lease', '-inf', second - FOREIGN_GRACE_S, 'LIMIT', 0, ARGV[3])
for i = 1, #over do
  local row = look(queue, over[i], false)
  if row and row[4] == 'active' then
    reply[#reply + 1] = row
  else
    -- A lease of nothing: what a Go worker leaves of an id without a task, or of one that has gone on.
    call('ZREM', queue .. 'lease', over[i])
    call('LREM', queue .. 'active', 0, over[i])
    if not row then drop_hash(queue .. 't:' .. over[i]) end
    redis.pcall('HINCRBY', 'wl:' .. queue .. 'mend', 'ghosts', 1)
  end
end
return reply
