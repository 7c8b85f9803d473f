-- prune: remove finished records that have been kept their time.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {time, done, 1 when more are over, when the next is over or ''}, or 0: the term is stale
local LOOKED_AT_MAX = 2000
local LISTS_MAX = 100
local STALE_MAX = 200
local queue, limit = KEYS[1], tonumber(ARGV[3])
if not is_current(queue, ARGV[2]) then return 0 end
local done, looked, has_more = 0, 0, false
local lists = call('ZRANGEBYSCORE', queue .. 'ks', '-inf', now, 'LIMIT', 0, LISTS_MAX)
for n = 1, #lists do
  if has_more then break end
  local list = queue .. 'k:' .. lists[n]
  local next_until
  while not has_more do
    local lines = call('LRANGE', list, 0, 9)
    if #lines == 0 then break end
    local passed = 0
    for i = 1, #lines do
      local line = lines[i]
      local until_ms, at = take('>I6', line, 1), 7
      if until_ms > now then next_until = until_ms; break end
      while at < #line and not has_more do
        local id = sub(line, at, at + 15)
        local record = call('HGET', queue .. 'd', id)
        local head = record and head_of(record)
        -- One that was run again, or deleted, left its place in the line behind.
        local is_due = head and is_over(record, head) and kept_until(record, head) == until_ms
        looked = looked + 1
        if looked > LOOKED_AT_MAX or (is_due and done >= limit) then
          has_more, next_until = true, until_ms
        else
          if is_due then
            prune_one(queue, id, record, head)
            done = done + 1
          end
          at = at + 16
        end
      end
      if has_more then
        call('LSET', list, i - 1, sub(line, 1, 6) .. sub(line, at))
        break
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
-- More lists may be due than were looked at.
if #lists == LISTS_MAX and call('ZCOUNT', queue .. 'ks', '-inf', now) > 0 then has_more = true end
-- When the next is over; places that were left behind do not count.
local next_over
for _ = 1, STALE_MAX do
  local first = call('ZRANGE', queue .. 'ks', 0, 0)[1]
  if not first then break end
  local list = queue .. 'k:' .. first
  local line = call('LINDEX', list, 0)
  if not line then
    call('ZREM', queue .. 'ks', first)
  else
    local until_ms, record = take('>I6', line, 1), call('HGET', queue .. 'd', sub(line, 7, 22))
    local head = record and head_of(record)
    local state = head and state_of(record, head)
    if (state == 'c' or state == 'x') and kept_until(record, head) == until_ms then
      next_over = string.format('%.0f', until_ms)
      call('ZADD', queue .. 'ks', until_ms, first)
      break
    elseif #line > 22 then
      call('LSET', list, 0, sub(line, 1, 6) .. sub(line, 23))
    else
      call('LPOP', list)
    end
  end
end
return { now, done, has_more and 1 or 0, next_over or '' }
