-- tend: a queue's own upkeep: keys whose time is over, marks of lost workers, journal entries whose
-- tasks are all gone.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {keys freed, 1 when more are over, when there is something to do again or '', since when the queue is idle
--   or ''}, or 0: the term is stale
local HOUR_MS, JOURNAL_AT_ONCE, LOOKED_AT_MAX = 3600000, 100, 1000
local queue, limit = KEYS[1], tonumber(ARGV[3])
if not is_current(queue, ARGV[2]) then return 0 end
local over = call('ZRANGEBYSCORE', queue .. 'ut', '-inf', now, 'LIMIT', 0, limit)
for i = 1, #over do
  local held = call('HGET', queue .. 'u', over[i])
  if held and take('>I6', held, 17) > 0 and take('>I6', held, 17) <= now then
    call('HDEL', queue .. 'u', over[i])
  end
  call('ZREM', queue .. 'ut', over[i])
end
local has_more = call('ZCOUNT', queue .. 'ut', '-inf', now) > 0
call('ZREMRANGEBYSCORE', queue .. 'lost', '-inf', now - HOUR_MS - 1)

-- The journal, a piece at a time, round and round. One record that is there is enough to need an entry.
local notes, looked = queue .. 'mend', 0
local from = call('HGET', notes, 'swept')
local entries = call('XRANGE', queue .. 'j', from and '(' .. from or '-', '+', 'COUNT', JOURNAL_AT_ONCE)
local last
for i = 1, #entries do
  if looked > LOOKED_AT_MAX then break end
  local text, is_needed = entries[i][2][2], false
  for at = 2, #text, 17 do
    looked = looked + 1
    is_needed = call('HEXISTS', queue .. 'd', sub(text, at, at + 15)) == 1
    if is_needed then break end
  end
  if not is_needed then call('XDEL', queue .. 'j', entries[i][1]) end
  last = i
end
if last and (last < #entries or #entries == JOURNAL_AT_ONCE) then
  call('HSET', notes, 'swept', entries[last][1])
  return { #over, has_more and 1 or 0, now, '' }
elseif from then
  call('HDEL', notes, 'swept')
end
local due = tonumber(call('ZRANGE', queue .. 'ut', 0, 0, 'WITHSCORES')[2])
local forgotten = tonumber(call('ZRANGE', queue .. 'lost', 0, 0, 'WITHSCORES')[2])
if forgotten then
  forgotten = forgotten + HOUR_MS + 1
  if not due or forgotten < due then due = forgotten end
end
local idle = idle_since(queue)
return { #over, has_more and 1 or 0, due and string.format('%.0f', due) or '', idle and string.format('%.0f', idle) or '' }
