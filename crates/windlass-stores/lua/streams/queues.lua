-- queues: what is known of a queue.
-- returns {paused, running, pending since or '', name and value of each counter ...}
local queue = KEYS[1]
local running, oldest = 0, nil
for lane = 0, 7 do
  local stream = queue .. 's:' .. lane
  local groups = call('EXISTS', stream) == 1 and call('XINFO', 'GROUPS', stream) or {}
  for g = 1, #groups do
    local group, from = groups[g], '-'
    for i = 1, #group, 2 do
      if group[i] == 'pending' then running = running + group[i + 1] end
      if group[i] == 'last-delivered-id' then from = '(' .. group[i + 1] end
    end
    -- The first that nobody has; what was called off is not in the stream any more.
    local entry = call('XRANGE', stream, from, '+', 'COUNT', 1)[1]
    local record = entry and call('HGET', queue .. 'd', entry[2][2])
    local head = record and head_of(record)
    if head then
      local since = take('>I6', record, head + KEPT)
      if not oldest or since < oldest then oldest = since end
    end
  end
end
local back = call('ZRANGE', queue .. 'back', 0, 0, 'WITHSCORES')[2]
if back and (not oldest or tonumber(back) < oldest) then oldest = tonumber(back) end
local reply = { call('HGET', queue .. 'st', 'paused') and 1 or 0, running, oldest or '' }
local counts = call('HGETALL', queue .. 'st')
for i = 1, #counts do reply[3 + i] = counts[i] end
return reply
