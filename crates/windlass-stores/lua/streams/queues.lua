-- queues: what is known of queues.
-- returns for each {paused, running, pending since or '', name and value of each counter ...}, or what is wrong with
--   it when it cannot be used
local function describe(queue)
  local running, oldest = 0, nil
  local counters, waiting, has_runs = counters_of(queue)
  if has_runs or waiting ~= 0 then
    for lane = 0, 7 do
      local group = group_of(queue, lane)
      if group then
        running = running + group.pending
        -- The first that nobody has; what was called off is not in the stream any more.
        local from = '(' .. group['last-delivered-id']
        local entry = call('XRANGE', queue .. 's:' .. lane, from, '+', 'COUNT', 1)[1]
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
  end
  local reply = { counters.paused and 1 or 0, running, oldest or '' }
  for name, count in pairs(counters) do
    if name ~= 'paused' then
      reply[#reply + 1] = name
      reply[#reply + 1] = count
    end
  end
  return reply
end

local replies = {}
for k = 1, #KEYS do
  local reply, trouble = try(describe, KEYS[k])
  replies[k] = reply or trouble
end
return replies
