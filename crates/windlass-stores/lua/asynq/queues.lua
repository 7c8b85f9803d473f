-- queues: what is known of queues.
-- returns for each {paused, pending since in ms or '', pending, active, scheduled, retry, completed, archived,
--   cancelled, what was said of a damaged key or ''}: what cannot be counted counts as 0
local ENDS, replies = 32, {}

-- Since when the oldest of the pending tasks is pending, in ms, as far as the ends of the line say.
local function oldest_of(queue, pending)
  local oldest
  -- The line's end is the oldest; what was put off stands at its beginning.
  local ids = call('LRANGE', queue .. 'pending', -ENDS, -1)
  if pending > ENDS then
    local newest = call('LRANGE', queue .. 'pending', 0, math.min(ENDS, pending - ENDS) - 1)
    for i = 1, #newest do ids[#ids + 1] = newest[i] end
  end
  for i = 1, #ids do
    local since = fields_of(queue .. 't:' .. ids[i], 'pending_since')[1]
    local ms = since and math.floor(tonumber(sub(since, 1, -7)) or 0)
    if ms and (not oldest or ms < oldest) then oldest = ms end
  end
  return oldest and number(oldest) or number(now)
end

-- How many tasks wait to be aggregated, or are being aggregated by Go servers just now.
local function grouped_in(queue)
  local grouped, groups = 0, call('SMEMBERS', queue .. 'groups')
  for i = 1, #groups do grouped = grouped + call('ZCARD', queue .. 'g:' .. groups[i]) end
  local sets = call('ZRANGE', queue .. 'aggregation_sets', 0, -1)
  for i = 1, #sets do grouped = grouped + call('ZCARD', sets[i]) end
  return grouped
end

for k = 1, #KEYS do
  local queue, damage = KEYS[k], ''
  local function count_of(...)
    local counted = guarded(...)
    if type(counted) ~= 'table' then return counted end
    damage = counted[2]
    return 0
  end
  local pending = count_of(call, 'LLEN', queue .. 'pending')
  local cancelled = count_of(call, 'ZCARD', 'wl:' .. queue .. 'x')
  local archived = count_of(call, 'ZCARD', queue .. 'archived')
  replies[k] = {
    call('EXISTS', queue .. 'paused'), pending > 0 and oldest_of(queue, pending) or '', pending,
    count_of(call, 'LLEN', queue .. 'active'),
    count_of(call, 'ZCARD', queue .. 'scheduled') + count_of(grouped_in, queue),
    count_of(call, 'ZCARD', queue .. 'retry'), count_of(call, 'ZCARD', queue .. 'completed'),
    math.max(0, archived - cancelled), math.min(cancelled, archived), damage,
  }
end
return replies
