-- prune: remove completed and cancelled records that have been kept their time.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {time, done, 1 when more are over, when the next is over or ''}, or 0: the term is stale
local queue, limit = KEYS[1], tonumber(ARGV[3])
local own, SAMPLE = 'wl:' .. queue, 20
if not is_current(own, ARGV[2]) then return 0 end
local done = 0
call('HLEN', own .. 'i')
call('ZCARD', queue .. 'archived')
call('ZCARD', own .. 'x')

local function remove(place, id, once)
  call('ZREM', queue .. place, id)
  free_once(queue, once, id)
  call('DEL', queue .. 't:' .. id)
  done = done + 1
end

-- The score of a completed task is the first whole second after its end; the exact time is in its record.
local over = call('ZRANGEBYSCORE', queue .. 'completed', '-inf', second + 1, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #over, 2 do
  local once, exact = unpack(fields_of(queue .. 't:' .. over[i], 'wl_i', 'wl_d'), 1, 2)
  if kept_until(exact, over[i + 1]) <= now then remove('completed', over[i], once) end
end
local cancelled = call('ZRANGEBYSCORE', own .. 'x', '-inf', now, 'LIMIT', 0, limit)
for i = 1, #cancelled do
  if done >= limit then break end
  local id = cancelled[i]
  call('ZREM', own .. 'x', id)
  -- Someone may have run it again, or deleted it, with asynq's own tools.
  if is_cancelled(queue, id) then remove('archived', id, call('HGET', queue .. 't:' .. id, 'wl_i')) end
end

local next_over
local first = call('ZRANGE', queue .. 'completed', 0, SAMPLE - 1, 'WITHSCORES')
for i = 1, #first, 2 do
  local at = kept_until(fields_of(queue .. 't:' .. first[i], 'wl_d')[1], first[i + 1])
  if not next_over or at < next_over then next_over = at end
end
local next_cancelled = tonumber(call('ZRANGE', own .. 'x', 0, 0, 'WITHSCORES')[2])
if next_cancelled and (not next_over or next_cancelled < next_over) then next_over = next_cancelled end
local has_more = done > 0 and next_over and next_over <= now
return { now, done, has_more and 1 or 0, next_over and number(next_over) or '' }
