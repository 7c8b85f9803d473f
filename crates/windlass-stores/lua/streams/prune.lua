-- prune: remove finished records that have been kept their time.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {time, done, 1 when more are over, when the next is over or ''}, or 0: the term is stale
local LOOKED_AT_MAX = 2000
local STALE_MAX = 200
local queue, limit = KEYS[1], tonumber(ARGV[3])
if not is_current(queue, ARGV[2]) then return 0 end
local done, looked, has_more = 0, 0, false
local lists = call('ZRANGEBYSCORE', queue .. 'ks', '-inf', now)
for n = 1, #lists do
  if has_more then break end
  local list = queue .. 'k:' .. lists[n]
  local next_until
  while not has_more do
    local items = call('LRANGE', list, 0, 199)
    if #items == 0 then break end
    local passed = 0
    for i = 1, #items do
      local until_ms, id = take('>I6', items[i], 1), sub(items[i], 7)
      if until_ms > now then next_until = until_ms; break end
      looked = looked + 1
      local record = call('HGET', queue .. 'd', id)
      local head = record and head_of(record)
      -- One that was run again, or deleted, left its line behind.
      if head and is_over(record, head) and take('>I6', record, head + KEPT) == until_ms then
        if done >= limit or looked > LOOKED_AT_MAX then
          has_more, next_until = true, until_ms
          break
        end
        prune_one(queue, id, record, head)
        done = done + 1
      end
      passed = i
    end
    if passed > 0 then call('LTRIM', list, passed, -1) end
    if next_until then break end
  end
  if next_until then
    call('ZADD', queue .. 'ks', next_until, lists[n])
  else
    call('ZREM', queue .. 'ks', lists[n])
  end
end
-- When the next is over; lines that were left behind do not count.
local next_over
for _ = 1, STALE_MAX do
  local first = call('ZRANGE', queue .. 'ks', 0, 0)[1]
  if not first then break end
  local line = call('LINDEX', queue .. 'k:' .. first, 0)
  if not line then
    call('ZREM', queue .. 'ks', first)
  else
    local until_ms, record = take('>I6', line, 1), call('HGET', queue .. 'd', sub(line, 7))
    local head = record and head_of(record)
    local state = head and sub(record, head, head)
    next_over = string.format('%.0f', until_ms)
    if (state == 'c' or state == 'x') and take('>I6', record, head + KEPT) == until_ms then
      call('ZADD', queue .. 'ks', until_ms, first)
      break
    end
    next_over = nil
    call('LPOP', queue .. 'k:' .. first)
  end
end
return { now, done, has_more and 1 or 0, next_over or '' }
