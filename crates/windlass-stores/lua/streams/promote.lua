-- promote: move tasks whose time has come to their lanes, the longest due first, and of one instant
-- those that were submitted first.
-- ARGV[2] the leader's term, ARGV[3] limit
-- returns {time, done, 1 when more are due, when the next is due or '', skipped, ids of unreadable records …}, or 0: the
-- term is stale
local queue, limit = KEYS[1], tonumber(ARGV[3])
if not is_current(queue, ARGV[2]) then return 0 end
local due = call('ZRANGEBYSCORE', queue .. 'z', '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
local done, skipped, unreadable = 0, 0, {}
if #due > 0 then
  local ids, waiting = {}, {}
  for i = 1, #due, 2 do ids[#ids + 1] = due[i] end
  local records = call('HMGET', queue .. 'd', unpack(ids))
  for i = 1, #ids do
    local record = records[i]
    local head = record and head_of(record)
    local state = head and state_of(record, head)
    if state == 's' or state == 'r' then
      waiting[#waiting + 1] = { tonumber(due[2 * i]), sub(record, head + 30, head + 37), ids[i], record, head, state }
    else
      skipped = skipped + 1
      if record and not state then unreadable[#unreadable + 1] = ids[i] end
    end
  end
  table.sort(waiting, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  call('ZREM', queue .. 'z', unpack(ids))
  if #waiting > 0 then
    local records_now, left, added, stamp = {}, {}, {}, pack('>I6', now)
    local promoted = {}
    for i = 1, #waiting do
      local _, _, id, record, head, state = unpack(waiting[i])
      local lane = sub(record, head + 1, head + 1)
      records_now[2 * i - 1] = id
      records_now[2 * i] = enter(queue, lane, id) .. ' p' .. sub(record, head + 1, head + 11) .. stamp .. stamp
        .. sub(record, head + 24)
      left[state] = (left[state] or 0) + 1
      added[lane] = (added[lane] or 0) + 1
      promoted[i] = id
    end
    call('HSET', queue .. 'd', unpack(records_now))
    call('HDEL', queue .. 'g', unpack(promoted))
    for state, count in pairs(left) do call('HINCRBY', queue .. 'st', state, -count) end
    if left.r then moved(queue) end
    for lane, count in pairs(added) do
      call('HINCRBY', queue .. 'st', 'p' .. lane, count)
      ring(queue, lane)
    end
    done = #waiting
  end
end
local next_due = call('ZRANGE', queue .. 'z', 0, 0, 'WITHSCORES')[2]
local has_more = next_due and tonumber(next_due) <= now
return { now, done, has_more and 1 or 0, next_due or '', skipped, unpack(unreadable) }
