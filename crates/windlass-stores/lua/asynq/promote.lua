-- promote: move tasks whose time has come to the end of the line, the longest due first.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {time, done, 1 when more are due, when the next is due or '', skipped}, or 0: the term is stale
local queue, limit = KEYS[1], tonumber(ARGV[3])
if not is_current('wl:' .. queue, ARGV[2]) then return 0 end
local due, skipped, ready = {}, 0, {}
for _, place in ipairs({ 'scheduled', 'retry' }) do
  local found = call('ZRANGEBYSCORE', queue .. place, '-inf', second, 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do
    due[#due + 1] = { tonumber(found[i + 1]), found[i], place }
  end
end
table.sort(due, function(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  -- Of one second, as in each set: ids of windlass grow with time.
  return one[2] < other[2]
end)
-- Read first: what leaves its place must have another to go to.
local tasks = {}
if #due > 0 then call('LLEN', queue .. 'pending') end
for i = 1, math.min(#due, limit) do
  tasks[i] = fields_of(queue .. 't:' .. due[i][2], 'msg', 'group')
  local group = tasks[i][2]
  if group and group ~= '' then
    call('ZCARD', queue .. 'g:' .. group)
    call('SCARD', queue .. 'groups')
  end
end
for i = 1, math.min(#due, limit) do
  local _, id, place = unpack(due[i])
  local key = queue .. 't:' .. id
  local message, group = unpack(tasks[i], 1, 2)
  call('ZREM', queue .. place, id)
  if not message then
    -- An id without a task.
    drop_hash(key)
    skipped = skipped + 1
  elseif group and group ~= '' then
    -- asynq forgets to name the group.
    call('HSET', key, 'state', 'aggregating')
    call('ZADD', queue .. 'g:' .. group, second, id)
    call('SADD', queue .. 'groups', group)
  else
    call('HSET', key, 'state', 'pending', 'pending_since', now_ns)
    call('HDEL', key, 'wl_p')
    ready[#ready + 1] = id
  end
end
if #ready > 0 then
  call('LPUSH', queue .. 'pending', unpack(ready))
  ring(queue)
end
local next_due
for _, place in ipairs({ 'scheduled', 'retry' }) do
  local score = tonumber(call('ZRANGE', queue .. place, 0, 0, 'WITHSCORES')[2])
  if score and (not next_due or score < next_due) then next_due = score end
end
local has_more = next_due and next_due <= second
return { now, math.min(#due, limit) - skipped, has_more and 1 or 0, next_due and number(next_due * 1000) or '', skipped }
