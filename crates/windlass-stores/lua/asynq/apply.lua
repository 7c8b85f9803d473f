-- apply: record runs that succeeded, each only while its lease is valid, and claim the next tasks.
-- ARGV[2] where the claim's arguments begin, or 0; ARGV[3] count of queues; then for each queue its number in
--   KEYS, count, and for each run: id, number of its claim, retention in ms, ms that it took or `-`, 1 when
--   it has a result, the result. No task is named twice.
-- returns {time, claim's reply or 0, for each queue 1 all are recorded |
--   {1 recorded | 0 no such task | {own record, done} as it stands, ...} | {'damaged', why} nothing is recorded}
-- How long a task is kept that is to leave nothing, when someone waits for its end.
local AWAITED_KEPT_MS = 60000
local claim_at, at, reply = tonumber(ARGV[2]), 4, { now, 0 }

-- Frees the lock of a task that has ended. One that is held for a time stays.
local function free_lock_at_end(queue, lock, id)
  local until_ms, owner = lock_of(queue, lock)
  if not (owner == id and until_ms > 0) then free_lock(queue, lock, id) end
end

-- Records `total` runs of a queue, whose arguments begin at `first`.
local function record(queue, first, total)
  local own, ids = 'wl:' .. queue, {}
  for i = 1, total do ids[i] = ARGV[first + (i - 1) * 6] end
  local scores = call('ZMSCORE', queue .. 'lease', unpack(ids))
  call('LLEN', queue .. 'active')
  call('ZCARD', queue .. 'completed')
  local answers, ended, kept, removed, held, freed, onces = {}, {}, {}, {}, {}, {}, {}
  local worker
  for i = 1, total do
    local from, id = first + (i - 1) * 6, ids[i]
    local key = queue .. 't:' .. id
    local state, claim_number, lease, holder, lock, once, awaited =
      unpack(fields_of(key, 'state', 'wl_f', 'wl_l', 'wl_w', 'unique_key', 'wl_i', 'wl_a'))
    if not state then
      answers[i] = 0
    elseif state ~= 'active' or claim_number ~= ARGV[from + 1] or not is_own_lease(scores[i], lease) then
      local record, done = unpack(call('HMGET', key, 'wl', 'wl_d'))
      answers[i] = { record or '', done or '' }
    else
      local retention = tonumber(ARGV[from + 2])
      if retention == 0 and awaited and tonumber(awaited) > now then retention = AWAITED_KEPT_MS end
      answers[i], ended[#ended + 1] = 1, id
      -- Mostly the one of the run before.
      if not (worker and holder and sub(holder, -#worker - 1) == ' ' .. worker) then worker = worker_of(holder) end
      if worker then
        held[worker] = held[worker] or {}
        table.insert(held[worker], id)
      end
      if lock then freed[lock] = id end
      if retention > 0 then
        local done = claim_number .. ' ' .. number(now) .. ' ' .. ARGV[from + 3] .. ' ' .. number(retention)
        local message = call('HGET', key, 'msg') .. varint(13, second)
        if ARGV[from + 4] == '1' then
          call('HSET', key, 'msg', message, 'state', 'completed', 'wl_d', done, 'result', ARGV[from + 5])
        else
          call('HSET', key, 'msg', message, 'state', 'completed', 'wl_d', done)
        end
        call('HDEL', key, 'wl_x', 'wl_l', 'wl_a')
        kept[#kept + 1], kept[#kept + 2] = second_of(math.min(now + retention, LATEST)), id
      else
        removed[#removed + 1] = key
        if once then onces[once] = id end
      end
    end
  end

  if #ended > 0 then
    leave_active(queue, ended)
    call('ZREM', queue .. 'lease', unpack(ended))
    for worker, of_worker in pairs(held) do redis.pcall('SREM', own .. 'w:' .. worker, unpack(of_worker)) end
    if #kept > 0 then call('ZADD', queue .. 'completed', unpack(kept)) end
    for lock, id in pairs(freed) do guarded(free_lock_at_end, queue, lock, id) end
    for once, id in pairs(onces) do guarded(free_once, queue, once, id) end
    if #removed > 0 then call('DEL', unpack(removed)) end
    count(queue, 'processed', #ended)
    tell_ends(queue, ended)
  end
  return #ended == total and 1 or answers
end

for q = 1, tonumber(ARGV[3]) do
  local queue, total = KEYS[tonumber(ARGV[at])], tonumber(ARGV[at + 1])
  reply[2 + q] = guarded(record, queue, at + 2, total)
  at = at + 2 + total * 6
end
if claim_at > 0 then reply[2] = claim(claim_at) end
return reply
