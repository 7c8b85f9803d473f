-- workers: how many tasks each worker holds in queues; a queue that cannot be used is left out.
-- returns {worker, count, ...}, a worker for each lane of each
local reply = {}
local function count_in(queue)
  local _, _, has_runs = counters_of(queue)
  for lane = 0, has_runs and 7 or -1 do
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
end
for k = 1, #KEYS do try(count_in, KEYS[k]) end
return reply
