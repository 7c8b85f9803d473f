-- workers: how many tasks each worker holds in a queue. returns {worker, count, ...}
local queue, reply = KEYS[1], {}
for lane = 0, 7 do
  local stream = queue .. 's:' .. lane
  local consumers = group_of(queue, lane) and call('XINFO', 'CONSUMERS', stream, 'w') or {}
  for c = 1, #consumers do
    local name, count
    for i = 1, #consumers[c], 2 do
      if consumers[c][i] == 'name' then name = consumers[c][i + 1] end
      if consumers[c][i] == 'pending' then count = consumers[c][i + 1] end
    end
    if count > 0 then
      reply[#reply + 1] = name
      reply[#reply + 1] = count
    end
  end
end
return reply
