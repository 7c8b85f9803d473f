-- place: move tasks from where they stand to where a decision puts them, each only if nothing has
-- happened to it since it was looked at.
-- ARGV[2] the leader's term, or empty; then for each task: id; as it was seen: its state, score, own record,
--   claim, and the bytes of its message; the new state or empty to delete it; its new score, or since when it
--   is pending in ns (empty: since now); its new message, or empty to keep it; its new own record; its crashes;
--   when it is cancelled until when it is kept in ms, else empty; 1 to free its unique lock; 1 to free its idempotency key;
--   f to put it to the front of the line, b to its end; what the run counts as (p processed, f failed, empty
--   nothing); what becomes of its result (k keep, d drop)
-- returns {1 done | 0 no longer as it was, ...}, or 0 when the term is stale
local queue, at, reply, ended, is_ready = KEYS[1], 3, {}, {}, false
local own = 'wl:' .. queue
local PARTS = 17
if ARGV[2] ~= '' and not is_current(own, ARGV[2]) then return 0 end
check_places(queue)

-- Takes a task out of its place.
local function take_out(id, state, group, holder)
  if state == 'active' then
    leave_active(queue, { id })
    call('ZREM', queue .. 'lease', id)
    local worker = worker_of(holder)
    if worker then redis.pcall('SREM', own .. 'w:' .. worker, id) end
  elseif state == 'pending' then
    call('LREM', queue .. 'pending', -1, id)
  else
    local place = place_of(queue, state, group)
    call('ZREM', place, id)
    if state == 'aggregating' and call('EXISTS', place) == 0 then call('SREM', queue .. 'groups', group) end
    if state == 'archived' then call('ZREM', own .. 'x', id) end
  end
end

while at <= #ARGV do
  local id, key = ARGV[at], queue .. 't:' .. ARGV[at]
  local state, record, claim_number, group, holder, lock, once =
    unpack(fields_of(key, 'state', 'wl', 'wl_f', 'group', 'wl_w', 'unique_key', 'wl_i'))
  local score = state and score_of(queue, id, state, group) or ''
  local is_same = state == ARGV[at + 1] and score == ARGV[at + 2] and (record or '') == ARGV[at + 3]
    and (claim_number or '') == ARGV[at + 4] and redis.pcall('HSTRLEN', key, 'msg') == tonumber(ARGV[at + 5])
  if not is_same then
    reply[#reply + 1] = 0
  else
    local next_state, time, message = ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
    local kept = ARGV[at + 11]
    take_out(id, state, group, holder)
    if ARGV[at + 12] == '1' and lock then guarded(free_lock, queue, lock, id) end
    if ARGV[at + 13] == '1' then guarded(free_once, queue, once, id) end
    if next_state == '' then
      call('DEL', key)
    else
      local fields, dropped = { 'state', next_state, 'wl', ARGV[at + 9] }, { 'wl_x', 'wl_l', 'wl_d' }
      if message ~= '' then fields[#fields + 1], fields[#fields + 2] = 'msg', message end
      if ARGV[at + 10] ~= '0' then
        fields[#fields + 1], fields[#fields + 2] = 'wl_k', ARGV[at + 10]
      else
        dropped[#dropped + 1] = 'wl_k'
      end
      if kept ~= '' then
        fields[#fields + 1], fields[#fields + 2] = 'wl_s', 'cancelled'
        fields[#fields + 1], fields[#fields + 2] = 'wl_z', time
      else
        dropped[#dropped + 1], dropped[#dropped + 2] = 'wl_s', 'wl_z'
      end
      if ARGV[at + 16] == 'd' then dropped[#dropped + 1] = 'result' end
      if next_state == 'pending' then
        dropped[#dropped + 1] = 'wl_p'
        fields[#fields + 1], fields[#fields + 2] = 'pending_since', time ~= '' and time or now_ns
      elseif state == 'pending' then
        dropped[#dropped + 1] = 'pending_since'
      end
      if next_state == 'archived' or next_state == 'completed' then dropped[#dropped + 1] = 'wl_a' end
      call('HSET', key, unpack(fields))
      call('HDEL', key, unpack(dropped))
      if next_state == 'pending' then
        call(ARGV[at + 14] == 'f' and 'RPUSH' or 'LPUSH', queue .. 'pending', id)
        is_ready = true
      else
        call('ZADD', queue .. next_state, time, id)
        if kept ~= '' then call('ZADD', own .. 'x', kept, id) end
      end
    end
    if ARGV[at + 15] ~= '' then count(queue, 'processed', 1) end
    if ARGV[at + 15] == 'f' then count(queue, 'failed', 1) end
    if next_state == '' or next_state == 'archived' or next_state == 'completed' then ended[#ended + 1] = id end
    reply[#reply + 1] = 1
  end
  at = at + PARTS
end
if is_ready then ring(queue) end
tell_ends(queue, ended)
return reply
