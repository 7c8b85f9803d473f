-- insert: store tasks of one or more queues, with the keys that they ask for.
-- ARGV from 2, for each queue: count, and for each task: id, message, when (`n` at once, `a<ms>` after,
--   `t<ms>` at), windlass's own record or empty, the digest of its idempotency key or empty, its unique lock
--   or empty, the ms that it is held (-1 until the task is finished)
-- Every queue is checked before the first write. A queue that cannot take its tasks, for example since one of its
-- keys has another type, fails alone.
-- returns {the time in ms, for each queue 1 all are stored | what is wrong with it: nothing is stored | for each task:
--   1 stored, {2, message} its id is in use, {3, holder, its message} the idempotency key is in use, {4, holder} the
--   unique lock is}
local reply, at, plans = { now }, 2, {}

-- True when the record of a task is over, or not there.
local function is_over(queue, id)
  local state, done = unpack(call('HMGET', queue .. 't:' .. id, 'state', 'wl_d'))
  if state == 'completed' then
    return kept_until(done, call('ZSCORE', queue .. 'completed', id) or 0) <= now
  end
  local kept = state and is_cancelled(queue, id) and call('ZSCORE', 'wl:' .. queue .. 'x', id)
  return not state or (kept and tonumber(kept) <= now)
end

-- Raises an error when a key has another type that a write of these tasks touches and `check` does not read.
local function check_types(plan)
  local queue, own = plan.queue, 'wl:' .. plan.queue
  local needs = { [queue .. 'pending'] = 'list', [own .. 'bell'] = 'list' }
  for i = 1, plan.total do
    local from = plan.first + (i - 1) * 7
    if ARGV[from + 2] ~= 'n' then needs[queue .. 'scheduled'] = 'zset' end
    if ARGV[from + 5] ~= '' then needs[own .. 'ut'] = 'zset' end
  end
  if next(plan.over) then
    needs[queue .. 'completed'], needs[queue .. 'archived'], needs[own .. 'x'] = 'zset', 'zset', 'zset'
  end
  for key, wanted in pairs(needs) do
    local trouble = mistyped(wanted, key)
    if trouble then error({ err = trouble }) end
  end
end

-- Decides what becomes of each task; writes nothing. What was decided in this call counts as if it were there
-- already.
local function check(plan)
  local queue, total, first, keys = plan.queue, plan.total, plan.first, plan.keys
  local own, answers, over = 'wl:' .. queue, plan.answers, plan.over
  local has_known, promised = call('EXISTS', unpack(keys)) > 0, {}
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
    if answer == 1 then plan.fresh = plan.fresh + 1 end
    answers[i] = answer
  end
  if plan.fresh > 0 or next(over) then check_types(plan) end
  return plan
end

-- Stores the tasks of a queue, the hashes first, then what leads to them; returns what the queue's part of the reply
-- says.
local function write(plan)
  local queue, total, first, keys = plan.queue, plan.total, plan.first, plan.keys
  local own, answers = 'wl:' .. queue, plan.answers
  for holder, once in pairs(plan.over) do
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
  return plan.fresh == total and 1 or answers
end

for k = 1, #KEYS do
  -- The arguments are read for all queues, whatever is wrong with one of them.
  local queue, total, keys = KEYS[k], tonumber(ARGV[at]), {}
  local first = at + 1
  at = first + total * 7
  for i = 1, total do keys[i] = queue .. 't:' .. ARGV[first + (i - 1) * 7] end
  local plan = { queue = queue, total = total, first = first, keys = keys, answers = {}, over = {}, fresh = 0 }
  local is_sound, trouble = try(check, plan)
  if is_sound then plans[k] = plan else reply[k + 1] = trouble end
end
for k = 1, #KEYS do
  if plans[k] then reply[k + 1] = write(plans[k]) end
end
return reply
