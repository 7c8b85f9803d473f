-- tend: a queue's own upkeep: keys whose time is over, marks of lost workers, journal entries whose
-- tasks are all gone, and what stands in a place without a record.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {keys freed, 1 when more are over, repairs}, or 0: the term is stale
local HOUR_MS, JOURNAL_AT_ONCE = 3600000, 100
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

-- The journal, a piece at a time, round and round.
local from = call('HGET', queue .. 'st', 'swept')
local entries = call('XRANGE', queue .. 'j', from and '(' .. from or '-', '+', 'COUNT', JOURNAL_AT_ONCE)
for i = 1, #entries do
  local text, ids = entries[i][2][2], {}
  for at = 2, #text, 17 do ids[#ids + 1] = sub(text, at, at + 15) end
  local records, is_needed = call('HMGET', queue .. 'd', unpack(ids)), false
  for n = 1, #ids do
    if records[n] then is_needed = true; break end
  end
  if not is_needed then call('XDEL', queue .. 'j', entries[i][1]) end
end
if #entries == JOURNAL_AT_ONCE then
  call('HSET', queue .. 'st', 'swept', entries[#entries][1])
elseif from then
  call('HDEL', queue .. 'st', 'swept')
end

-- Places that name a task without a record, or one that stands elsewhere.
local repairs = 0
local function mend(place, states)
  local key = queue .. place
  local cursor = call('HGET', queue .. 'st', 'mend:' .. place) or '0'
  local scanned = call('ZSCAN', key, cursor, 'COUNT', JOURNAL_AT_ONCE)
  local members = scanned[2]
  for i = 1, #members, 2 do
    local record = call('HGET', queue .. 'd', members[i])
    local head = record and head_of(record)
    if not head or not find(states, state_of(record, head), 1, true) then
      call('ZREM', key, members[i])
      repairs = repairs + 1
    end
  end
  if scanned[1] == '0' then
    call('HDEL', queue .. 'st', 'mend:' .. place)
  else
    call('HSET', queue .. 'st', 'mend:' .. place, scanned[1])
  end
end
mend('z', 'sr')
mend('dead', 'd')
mend('back', 'p')
return { #over, has_more and 1 or 0, repairs }
