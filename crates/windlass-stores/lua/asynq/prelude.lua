-- prelude: what the scripts on asynq's keys share; put in front of each of them when it is loaded.
--
-- Every KEYS entry is the stem `asynq:{<queue>}:` of one queue; windlass's own keys of the queue begin with
-- `wl:` before it and lie in the same slot. `keys.rs` has the table of both.
-- Scores are Unix seconds, as asynq has them; the exact times in ms are in fields that begin with `wl`.
local second = math.floor(now / 1000)
local now_ns = ARGV[1] == '' and string.format('%.0f', micros) .. '000' or string.format('%.0f', now) .. '000000'
local ANSWER_BYTES_MAX = 8388608
local FOREIGN_GRACE_S = 30

-- What is read of a task; `row.rs` reads them in this order.
local FIELDS = {
  'state', 'msg', 'pending_since', 'unique_key', 'group', 'wl', 'wl_f', 'wl_l', 'wl_w', 'wl_k', 'wl_x', 'wl_s',
  'wl_p', 'wl_d', 'wl_i', 'wl_m',
}

local function number(text)
  return string.format('%.0f', text)
end

-- The first whole second that is not before a time in ms: nothing is ever early.
local function second_of(ms)
  return math.ceil(ms / 1000)
end

-- A number as a field of a protobuf message, to be added behind it.
local function varint(tag, value)
  local bytes = { string.char(tag * 8) }
  while value >= 128 do
    bytes[#bytes + 1] = string.char(value % 128 + 128)
    value = math.floor(value / 128)
  end
  bytes[#bytes + 1] = string.char(value)
  return table.concat(bytes)
end

-- The fields of a hash, or none of them where the key is no hash.
local function fields_of(key, ...)
  local fields = redis.pcall('HMGET', key, ...)
  if not fields.err then return fields end
  if not is_damage(fields.err) then raise(fields.err) end
  return {}
end

-- Removes what is left of a task; a key of another type belongs to somebody else.
local function drop_hash(key)
  if call('TYPE', key).ok == 'hash' then call('DEL', key) end
end

-- Fails, before anything is written, if a place of the queue is damaged.
local function check_places(queue)
  call('LLEN', queue .. 'pending')
  call('LLEN', queue .. 'active')
  for _, place in ipairs({ 'lease', 'scheduled', 'retry', 'archived', 'completed' }) do
    call('ZCARD', queue .. place)
  end
  call('ZCARD', 'wl:' .. queue .. 'x')
end

-- Rings for those that wait for a queue; once is enough until someone has heard it. A damaged bell rings for nobody:
-- polls find the work.
local function ring(queue)
  local bell = 'wl:' .. queue .. 'bell'
  if redis.pcall('LLEN', bell) == 0 then call('LPUSH', bell, '1') end
end

-- Today's date in UTC.
local function today()
  local days = math.floor(second / 86400) + 719468
  local era = math.floor(days / 146097)
  local doe = days - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02d', year, month, day)
end

-- Counts runs that have ended, of today and of all days.
local STATS_KEPT_S = 7776000
local function count(queue, name, times)
  if times == 0 then return end
  local daily = queue .. name .. ':' .. today()
  if redis.pcall('INCRBY', daily, times) == times then call('EXPIRE', daily, STATS_KEPT_S) end
  local total = redis.pcall('INCRBY', queue .. name, times)
  -- asynq begins again with 1 where no larger number can be written.
  if type(total) == 'table' and find(total.err, 'overflow', 1, true) then call('SET', queue .. name, '1') end
end

-- The list of active tasks has the newest at its head and the oldest at its tail, and what ends together mostly
-- stands together. So one of a batch is looked for, and the others around it; what stands elsewhere costs a search
-- of its own, and after some of those one walk, which all that are left share.
local NEAR, FEW, SHALLOW, SEARCHED, SEARCHES = 100, 4, 500, 1000, 4
-- Ids that are taken out of the midst are struck out where they stand and then removed together. No id is empty.
local STRUCK_OUT = ''

-- Where an id stands, the ends first: the midst of a long list is far from both.
local function find_active(active, id)
  return call('LPOS', active, id, 'MAXLEN', SEARCHED) or call('LPOS', active, id, 'RANK', -1, 'MAXLEN', SEARCHED)
    or call('LPOS', active, id)
end

-- Takes out of one end of the list, so wide, what stands there of the ids in `gone`; answers how many are left of them.
local function leave_end(active, gone, left, width, is_tail)
  local near = is_tail and call('LRANGE', active, -width, -1) or call('LRANGE', active, 0, width - 1)
  local kept = {}
  for i = 1, #near do
    -- In the order in which they are put back: onto the head the last comes first.
    local id = near[is_tail and i or #near + 1 - i]
    if gone[id] then
      gone[id], left = nil, left - 1
    else
      kept[#kept + 1] = id
    end
  end
  if #kept == #near then return left end
  call('LTRIM', active, is_tail and 0 or #near, is_tail and -#near - 1 or -1)
  if #kept > 0 then call(is_tail and 'RPUSH' or 'LPUSH', active, unpack(kept)) end
  return left
end

-- The same for what stands from one place to another, nearer to the tail or to the head.
local function leave_stretch(active, gone, left, from, to, is_tail)
  local near, struck = call('LRANGE', active, from, to), 0
  for i = 1, #near do
    if gone[near[i]] then
      gone[near[i]], struck = nil, struck + 1
      call('LSET', active, from + i - 1, STRUCK_OUT)
    end
  end
  if struck > 0 then call('LREM', active, is_tail and -struck or struck, STRUCK_OUT) end
  return left - struck
end

local function leave_active(queue, ids)
  local active, gone, left = queue .. 'active', {}, #ids
  if left < FEW then
    for i = 1, left do
      local is_at_head = call('LPOS', active, ids[i], 'MAXLEN', SEARCHED)
      call('LREM', active, is_at_head and 1 or -1, ids[i])
    end
    return
  end
  for i = 1, left do gone[ids[i]] = true end
  local one, other = ids[1], ids[left]
  for _ = 1, SEARCHES do
    local at, length = find_active(active, one), call('LLEN', active)
    if not at then
      gone[one], left = nil, left - 1
    else
      local around = left + NEAR
      local from, to = math.max(0, at - around), math.min(length - 1, at + around)
      -- They are reported in the order in which they were claimed: mostly the last ends the stretch.
      local last = gone[other] and find_active(active, other)
      if last and math.abs(last - at) < around then from, to = math.min(at, last), math.max(at, last) end
      local is_tail = length - 1 - to < from
      if math.min(from, length - 1 - to) <= SHALLOW then
        left = leave_end(active, gone, left, is_tail and length - from or to + 1, is_tail)
      else
        left = leave_stretch(active, gone, left, from, to, is_tail)
      end
    end
    one = next(gone)
    if not one then return end
  end
  leave_stretch(active, gone, left, 0, -1, false)
end

-- Who holds a task by windlass's own account: `<claimed at> <pending since> <worker>`.
local function worker_of(held)
  return held and string.match(held, '^%S+ %S+ (.*)$')
end

-- True when a lease is the one that windlass wrote with a task's claim or its last beat: whoever else takes
-- the task writes another.
local function is_own_lease(score, written)
  return score and written and tonumber(score) == tonumber(written)
end

-- A unique lock by windlass's own account: until when it is held (0: until the task is finished), and by
-- whom. Nothing for the locks of others, which only Redis frees.
local function lock_of(queue, lock)
  local held = call('HGET', 'wl:' .. queue .. 'u', lock)
  if held then
    local until_ms, id = string.match(held, '^(%d+) (.*)$')
    return tonumber(until_ms), id
  end
end

-- How many seconds Redis keeps a lock that is held for so many ms; to windlass its own account counts. A clock that a
-- test moves says nothing of the server's: then the lock must outlast the test, however slow the machine is.
local TEST_MAX_S = 3600
local function lock_ttl(ms)
  return math.max(ARGV[1] == '' and 1 or TEST_MAX_S, second_of(ms))
end

-- Frees a unique lock if this task holds it.
local function free_lock(queue, lock, id)
  if call('GET', lock) == id then call('DEL', lock) end
  local until_ms, holder = lock_of(queue, lock)
  if holder == id then
    call('HDEL', 'wl:' .. queue .. 'u', lock)
    if until_ms > 0 then call('ZREM', 'wl:' .. queue .. 'ut', lock) end
  end
end

-- Frees an idempotency key if this task holds it.
local function free_once(queue, digest, id)
  if digest and call('HGET', 'wl:' .. queue .. 'i', digest) == id then
    call('HDEL', 'wl:' .. queue .. 'i', digest)
  end
end

-- Until when the record of a completed task is kept, in ms: `done` is `<claim> <finished> <took> <retention>`.
-- The score rules where someone else has completed the task since.
local function kept_until(done, score)
  local finished, retention = string.match(done or '', '^%d+ (%d+) %S+ (%d+)$')
  local exact = finished and math.min(tonumber(finished) + tonumber(retention), LATEST)
  if exact and second_of(exact) == tonumber(score) then return exact end
  return tonumber(score) * 1000
end

-- True when a task is archived since windlass has cancelled it, and not since someone else has archived it.
local function is_cancelled(queue, id)
  local state, what, at = unpack(call('HMGET', queue .. 't:' .. id, 'state', 'wl_s', 'wl_z'))
  return state == 'archived' and what and at == call('ZSCORE', queue .. 'archived', id)
end

-- Tells those that wait of tasks that have ended.
local function tell_ends(queue, ids)
  if #ids > 0 and call('EXISTS', 'wl:' .. queue .. 'watch') == 1 then
    for i = 1, #ids do call('PUBLISH', 'wl:' .. queue .. 'ends', ids[i]) end
  end
end

-- Where the score of a task in some state is; nothing for pending ones.
local function place_of(queue, state, group)
  if state == 'active' then return queue .. 'lease' end
  if state == 'aggregating' then return queue .. 'g:' .. (group or '') end
  if state ~= 'pending' then return queue .. state end
end

-- The score of a task in its place, '' when it has none, `damaged` when its place is no sorted set. One that a Go server is aggregating has left its group
-- for a set of that server's: `held`, until the server is done or the set is over.
local function score_of(queue, id, state, group)
  local place = place_of(queue, state, group)
  local score = place and redis.pcall('ZSCORE', place, id)
  if type(score) == 'table' then return 'damaged' end
  if score or state ~= 'aggregating' then return score or '' end
  local sets = call('ZRANGE', queue .. 'aggregation_sets', 0, -1)
  for i = 1, #sets do
    if sub(sets[i], 1, #place + 1) == place .. ':' and call('ZSCORE', sets[i], id) then return 'held' end
  end
  return ''
end

-- A task as it stands: its id, its score, its result if wanted, and its fields. Nothing when there is none.
local function look(queue, id, has_result)
  local key = queue .. 't:' .. id
  local fields = fields_of(key, unpack(FIELDS))
  if not fields[1] or not fields[2] then return nil end
  local score = score_of(queue, id, fields[1], fields[5])
  local result = has_result and call('HGET', key, 'result')
  return { id, score, result, unpack(fields) }
end

-- How many bytes a task adds to an answer, roughly.
local function bytes_of(row)
  return #row[5] + (row[3] and #row[3] or 0) + 200
end
