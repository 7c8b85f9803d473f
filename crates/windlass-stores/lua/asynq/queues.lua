-- queues: what is known of queues.
-- returns for each {paused, pending since in ms or '', pending, active, scheduled, retry, completed, archived,
--   cancelled}
local ENDS, replies = 32, {}
for k = 1, #KEYS do
  local queue, oldest = KEYS[k], nil
  local pending = call('LLEN', queue .. 'pending')
  -- The line's end is the oldest; what was put off stands at its beginning.
  local ids = call('LRANGE', queue .. 'pending', -ENDS, -1)
  if pending > ENDS then
    local newest = call('LRANGE', queue .. 'pending', 0, math.min(ENDS, pending - ENDS) - 1)
    for i = 1, #newest do ids[#ids + 1] = newest[i] end
  end
  for i = 1, #ids do
    local since = call('HGET', queue .. 't:' .. ids[i], 'pending_since')
    local ms = since and math.floor(tonumber(sub(since, 1, -7)) or 0)
    if ms and (not oldest or ms < oldest) then oldest = ms end
  end
  local grouped, groups = 0, call('SMEMBERS', queue .. 'groups')
  for i = 1, #groups do grouped = grouped + call('ZCARD', queue .. 'g:' .. groups[i]) end
  -- What Go servers are aggregating just now.
  local sets = call('ZRANGE', queue .. 'aggregation_sets', 0, -1)
  for i = 1, #sets do grouped = grouped + call('ZCARD', sets[i]) end
  local cancelled = call('ZCARD', 'wl:' .. queue .. 'x')
  local archived = call('ZCARD', queue .. 'archived')
  replies[k] = {
    call('EXISTS', queue .. 'paused'), oldest and number(oldest) or (pending > 0 and number(now) or ''), pending,
    call('LLEN', queue .. 'active'), call('ZCARD', queue .. 'scheduled') + grouped, call('ZCARD', queue .. 'retry'),
    call('ZCARD', queue .. 'completed'), math.max(0, archived - cancelled), math.min(cancelled, archived),
  }
end
return replies
