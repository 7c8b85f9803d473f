-- place: move tasks from where they stand to where a decision puts them, each only if nothing has
-- happened to it since it was looked at.
-- ARGV[2] the leader's term, or empty; then for each task: id, how its record begins, where it stands (r running, w waiting for a worker,
--   o otherwise), the new record without its entry or empty to delete it, its time (due, or ms of
--   retention), 1 when it comes back to its lane, digests of keys to free, what becomes of a large
--   result (k keep, d drop, s set) and, when it is set, the result
-- A damaged key of the queue fails the call before the task that needs it is changed.
-- returns {1 done | 0 no longer as it was, ...}, or 0 when the term is stale
local queue, at, reply = KEYS[1], 3, {}
if ARGV[2] ~= '' and not is_current(queue, ARGV[2]) then return 0 end
check_keys(queue)
while at <= #ARGV do
  local id, before, stands, after = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local time, is_back, keys, large = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  at = at + 8
  local result
  if large == 's' then result = ARGV[at]; at = at + 1 end
  local record = call('HGET', queue .. 'd', id)
  local is_same = record and sub(record, 1, #before) == before
  local head = is_same and head_of(record)
  local state, lane, entry, stream
  if head then
    state, lane = state_of(record, head), sub(record, head + 1, head + 1)
    if state == 'p' then
      entry, stream = sub(record, 1, head - 2), queue .. 's:' .. lane
      local is_held = held_in(queue, lane, entry, entry, 1)[1]
      if stands ~= (is_held and 'r' or 'w') then head = nil end
    end
  end
  if not head then
    reply[#reply + 1] = 0
  else
    -- First what may still fail: a lane or a list of retentions that is damaged.
    local next_state, next_lane, prefix = sub(after, 1, 1), sub(after, 2, 2), '- '
    if next_state == 'p' then
      prefix = enter(queue, next_lane, id) .. ' '
    elseif next_state == 'c' or next_state == 'x' then
      keep(queue, time, take('>I6', after, KEPT + 1), id)
    end
    if stands == 'r' then
      redis.pcall('XACK', stream, 'w', entry)
      call('HDEL', queue .. 'cr', id)
      if micros % 32 < 1 then guarded(cut, queue, lane) end
    elseif stands == 'w' then
      redis.pcall('XDEL', stream, entry)
      call('HINCRBY', queue .. 'st', 'p' .. lane, -1)
      call('ZREM', queue .. 'back', id)
    else
      call('HINCRBY', queue .. 'st', state, -1)
      if state == 's' or state == 'r' then call('ZREM', queue .. 'z', id) end
      if state == 'd' then call('ZREM', queue .. 'dead', id) end
    end
    for i = 1, #keys, 16 do free(queue, sub(keys, i, i + 15), id) end
    if large == 'd' then call('HDEL', queue .. 'b', id .. 'r') end
    if result then call('HSET', queue .. 'b', id .. 'r', result) end
    local is_ended = true
    if after == '' or find(state .. sub(after, 1, 1), '[rx]') then moved(queue) end
    if after == '' then
      call('HDEL', queue .. 'd', id)
      call('HDEL', queue .. 'g', id)
      call('HDEL', queue .. 'b', id .. 'p', id .. 'r')
    else
      if next_state == 'p' then
        call('HINCRBY', queue .. 'st', 'p' .. next_lane, 1)
        call('HDEL', queue .. 'g', id)
        if is_back == '1' then call('ZADD', queue .. 'back', take('>I6', after, KEPT + 1), id) end
        ring(queue, next_lane)
        is_ended = false
      else
        call('HINCRBY', queue .. 'st', next_state, 1)
        if next_state == 's' or next_state == 'r' then
          call('ZADD', queue .. 'z', time, id)
          is_ended = false
        elseif next_state == 'd' then
          call('ZADD', queue .. 'dead', take('>I7', after, 31), id)
        end
      end
      call('HSET', queue .. 'd', id, prefix .. after)
    end
    if is_ended and call('EXISTS', queue .. 'watch') == 1 then call('PUBLISH', queue .. 'ends', id) end
    reply[#reply + 1] = 1
  end
end
return reply
