-- insert: store tasks of one or more queues, with the keys that they ask for.
-- ARGV from 2, for each queue: count, and for each task: id, message, when (`n` at once, `a<ms>` after,
--   `t<ms>` at), windlass's own record or empty, the digest of its idempotency key or empty, its unique lock
--   or empty, the ms that it is held (-1 until the task is finished)
-- returns {the time in ms, for each queue 1 all are stored | for each task: 1 stored, {2, message} its id is in
--   use, {3, holder, its message} the idempotency key is in use, {4, holder} the unique lock is}
local reply, at = { now }, 2

-- True when the record of a task is over, or not there.
local function is_over(queue, id)
  local state, done = unpack(call('HMGET', queue .. 't:' .. id, 'state', 'wl_d'))
  if state == 'completed' then
    return kept_until(done, call('ZSCORE', queue .. 'completed', id) or 0) <= now
  end
  local kept = state and is_cancelled(queue, id) and call('ZSCORE', 'wl:' .. queue .. 'x', id)
  return not state or (kept and tonumber(kept) <= now)
end

for k = 1, #KEYS do
  local queue, total = KEYS[k], tonumber(ARGV[at])
  local own, answers, keys = 'wl:' .. queue, {}, {}
  local first = at + 1
  at = first + total * 7
  for i = 1, total do keys[i] = queue .. 't:' .. ARGV[first + (i - 1) * 7] end

  -- Check first. What was decided in this call counts as if it were there already.
  local has_known, promised, over, fresh = call('EXISTS', unpack(keys)) > 0, {}, {}, 0
  for i = 1, total do
    local from = first + (i - 1) * 7
    local id, once, lock, hold = ARGV[from], ARGV[from + 4], ARGV[from + 5], tonumber(ARGV[from + 6])
    local known, answer = has_known and call('HGET', keys[i], 'msg'), 1
    if known then
      answer = { 2, known }
    else
      if once ~= '' then
        local holder = promised[once]
        if holder then
          answer = { 3, holder, '' }
        else
          holder = call('HGET', own .. 'i', once)
          if holder and not over[holder] then
            if is_over(queue, holder) then
              over[holder] = once
            else
              answer = { 3, holder, call('HGET', queue .. 't:' .. holder, 'msg') or '' }
            end
          end
        end
      end
      if answer == 1 and lock ~= '' then
        local holder = promised[lock]
        if not holder then
          holder = call('GET', lock)
          local until_ms, owner = lock_of(queue, lock)
          if holder and owner == holder and until_ms > 0 and until_ms <= now then holder = nil end
        end
        if holder then answer = { 4, holder } end
      end
      if answer == 1 then
        if once ~= '' then promised[once] = id end
        if lock ~= '' and hold ~= 0 then promised[lock] = id end
      end
    end
    if answer == 1 then fresh = fresh + 1 end
    answers[i] = answer
  end

  -- Write after: the hashes first, then what leads to them.
  for holder, once in pairs(over) do
    local key = queue .. 't:' .. holder
    if call('EXISTS', key) == 1 then
      call('ZREM', queue .. 'completed', holder)
      call('ZREM', queue .. 'archived', holder)
      call('ZREM', own .. 'x', holder)
      call('DEL', key)
    end
    call('HDEL', own .. 'i', once)
  end
  local ready, later = {}, {}
  for i = 1, total do
    if answers[i] == 1 then
      local from = first + (i - 1) * 7
      local id, when, record = ARGV[from], ARGV[from + 2], ARGV[from + 3]
      local once, lock, hold = ARGV[from + 4], ARGV[from + 5], tonumber(ARGV[from + 6])
      local due = 0
      if when ~= 'n' then
        due = tonumber(sub(when, 2))
        if sub(when, 1, 1) == 'a' then due = now + due end
        if due > LATEST then due = LATEST end
      end
      local fields = { 'msg', ARGV[from + 1], 'state', 'pending' }
      if due > now then
        fields[4], record = 'scheduled', record .. varint(1, now) .. varint(3, due)
        later[#later + 1], later[#later + 2] = second_of(due), id
      else
        fields[5], fields[6] = 'pending_since', now_ns
        if record ~= '' then record = record .. varint(1, now) end
        ready[#ready + 1] = id
      end
      if record ~= '' then fields[#fields + 1], fields[#fields + 2] = 'wl', record end
      if lock ~= '' then fields[#fields + 1], fields[#fields + 2] = 'unique_key', lock end
      if once ~= '' then
        fields[#fields + 1], fields[#fields + 2] = 'wl_i', once
        call('HSET', own .. 'i', once, id)
      end
      if lock ~= '' and hold ~= 0 then
        if hold > 0 then
          local until_ms = math.min(now + hold, LATEST)
          call('SET', lock, id, 'EX', lock_ttl(until_ms - now))
          call('HSET', own .. 'u', lock, number(until_ms) .. ' ' .. id)
          call('ZADD', own .. 'ut', until_ms, lock)
        else
          call('SET', lock, id)
          call('HSET', own .. 'u', lock, '0 ' .. id)
          call('ZREM', own .. 'ut', lock)
        end
      end
      call('HSET', keys[i], unpack(fields))
    end
  end
  if #later > 0 then call('ZADD', queue .. 'scheduled', unpack(later)) end
  if #ready > 0 then
    call('LPUSH', queue .. 'pending', unpack(ready))
    ring(queue)
  end
  reply[k + 1] = fresh == total and 1 or answers
end
return reply
