-- mend: a step of the sweep that puts right what asynq leaves half done in a queue. A round is one phase after
-- the other; where it stands is kept in the hash `mend`.
-- ARGV[2] the leader's term, or empty for an operator; ARGV[3] how many items to look at, about; ARGV[4] 1 to
--   mend, 0 only to count
-- returns {1 when the round is over, what was mended, count, ...}, or 0: the term is stale
local queue, step, mends = KEYS[1], tonumber(ARGV[3]), ARGV[4] == '1'
local own = 'wl:' .. queue
local notes, COMPARED_MAX, GROUPS_MAX = own .. 'mend', 20000, 1000
if ARGV[2] ~= '' and not is_current(own, ARGV[2]) then return 0 end
local mended = {}
local function mend(what, count)
  if count > 0 then mended[what] = (mended[what] or 0) + count end
end

-- True when an id leads to a task; an id that does not is taken out of its place.
local function leads(id)
  return redis.pcall('HEXISTS', queue .. 't:' .. id, 'msg') == 1
end

-- Lists are walked from their oldest end.
local function walk_list(place, check)
  return function(cursor)
    local from = tonumber(cursor)
    local ids = call('LRANGE', queue .. place, -(from + step), -(from + 1))
    local removed = 0
    for i = 1, #ids do
      if not leads(ids[i]) then
        mend('ghosts', 1)
        if mends then
          removed = removed + call('LREM', queue .. place, 0, ids[i])
          call('ZREM', queue .. 'lease', ids[i])
          drop_hash(queue .. 't:' .. ids[i])
        end
      elseif check then
        check(ids[i])
      end
    end
    return #ids < step and '0' or number(from + #ids - removed), #ids
  end
end

-- A task that nobody can lose, since it has no lease: one that is over makes it found.
local function has_lease(id)
  if not call('ZSCORE', queue .. 'lease', id) then
    mend('leases', 1)
    if mends then call('ZADD', queue .. 'lease', second, id) end
  end
end

-- Notes when windlass first met a waiting task of Go's: nothing else says about when it was submitted.
local function note_meeting(id)
  local key = queue .. 't:' .. id
  local fields = fields_of(key, 'wl', 'wl_m', 'pending_since')
  if mends and not fields[1] and not fields[2] and not fields[3] then call('HSET', key, 'wl_m', number(now)) end
end

local function walk_set(place, check)
  return function(cursor)
    local scanned = call('ZSCAN', queue .. place, cursor, 'COUNT', step)
    for i = 1, #scanned[2], 2 do
      if not leads(scanned[2][i]) then
        mend('ghosts', 1)
        if mends then call('ZREM', queue .. place, scanned[2][i]) end
      elseif check then
        check(scanned[2][i])
      end
    end
    return scanned[1], #scanned[2] / 2
  end
end

-- Leases whose task is not among the active ones; they are only looked for when the numbers differ.
local function compare_leases()
  local count = call('LLEN', queue .. 'active')
  if call('ZCARD', queue .. 'lease') == count or count > COMPARED_MAX then return '0', 1 end
  local active, found = {}, call('LRANGE', queue .. 'active', 0, -1)
  for i = 1, #found do active[found[i]] = true end
  local leases = call('ZRANGE', queue .. 'lease', 0, COMPARED_MAX)
  for i = 1, #leases do
    local id = leases[i]
    if not active[id] then
      mend('actives', 1)
      if mends and call('HGET', queue .. 't:' .. id, 'state') == 'active' and leads(id) then
        call('LPUSH', queue .. 'active', id)
      elseif mends then
        call('ZREM', queue .. 'lease', id)
      end
    end
  end
  return '0', #leases
end

-- Groups that asynq has forgotten to name again: known since they were named, or while they were aggregated.
local function walk_groups()
  local named, sets = call('SMEMBERS', queue .. 'groups'), call('ZRANGE', queue .. 'aggregation_sets', 0, GROUPS_MAX)
  for i = 1, math.min(#named, GROUPS_MAX) do call('SADD', own .. 'groups', named[i]) end
  local stem = queue .. 'g:'
  for i = 1, #sets do
    local group = sub(sets[i], 1, #stem) == stem and string.match(sub(sets[i], #stem + 1), '^(.*):[^:]*$')
    if group then call('SADD', own .. 'groups', group) end
  end
  local known = call('SRANDMEMBER', own .. 'groups', GROUPS_MAX)
  for i = 1, #known do
    if call('EXISTS', stem .. known[i]) == 0 then
      if #sets == 0 then call('SREM', own .. 'groups', known[i]) end
    elseif call('SISMEMBER', queue .. 'groups', known[i]) == 0 then
      mend('groups', 1)
      if mends then call('SADD', queue .. 'groups', known[i]) end
    end
  end
  return '0', #known
end

-- Locks whose holder has ended by other hands than windlass's, and keys of tasks that are gone.
local function walk_locks(cursor)
  local scanned = call('HSCAN', own .. 'u', cursor, 'COUNT', step)
  for i = 1, #scanned[2], 2 do
    local lock = scanned[2][i]
    local until_ms, id = string.match(scanned[2][i + 1], '^(%d+) (.*)$')
    local state = id and call('HGET', queue .. 't:' .. id, 'state')
    if until_ms == '0' and (not state or state == 'archived' or state == 'completed') then
      mend('locks', 1)
      if mends then free_lock(queue, lock, id) end
    elseif until_ms and until_ms ~= '0' and mends then
      mend('locks', call('ZADD', own .. 'ut', 'NX', until_ms, lock))
    end
  end
  return scanned[1], #scanned[2] / 2
end

local function walk_onces(cursor)
  local scanned = call('HSCAN', own .. 'i', cursor, 'COUNT', step)
  for i = 1, #scanned[2], 2 do
    if not leads(scanned[2][i + 1]) then
      mend('keys', 1)
      if mends then call('HDEL', own .. 'i', scanned[2][i]) end
    end
  end
  return scanned[1], #scanned[2] / 2
end

local function walk_cancelled(cursor)
  local scanned = call('ZSCAN', own .. 'x', cursor, 'COUNT', step)
  for i = 1, #scanned[2], 2 do
    if not is_cancelled(queue, scanned[2][i]) then
      mend('cancelled', 1)
      if mends then call('ZREM', own .. 'x', scanned[2][i]) end
    end
  end
  return scanned[1], #scanned[2] / 2
end

local phases = {
  walk_list('active', has_lease), compare_leases, walk_list('pending'), walk_set('scheduled', note_meeting),
  walk_set('retry', note_meeting),
  walk_set('archived'), walk_set('completed'), walk_groups, walk_locks, walk_onces, walk_cancelled,
}
-- An operator's sweep is none of the leader's.
local phase_field, cursor_field = 'phase', 'cursor'
if ARGV[2] == '' then phase_field, cursor_field = 'phase:operator', 'cursor:operator' end
local phase, cursor = unpack(call('HMGET', notes, phase_field, cursor_field))
phase, cursor = tonumber(phase or '1'), cursor or '0'
local left, is_over = step, false
while left > 0 and not is_over do
  local next_cursor, looked = guarded(phases[phase], cursor)
  -- A damaged place is passed over; the others are walked.
  if type(next_cursor) == 'table' then next_cursor, looked = '0', 0 end
  cursor, left = next_cursor, left - looked - 1
  if cursor == '0' then phase = phase + 1 end
  is_over = phase > #phases
end
if is_over then
  call('HDEL', notes, phase_field, cursor_field)
else
  call('HSET', notes, phase_field, phase, cursor_field, cursor)
end
-- What claims and recoveries have dropped meanwhile.
for _, what in ipairs({ 'ghosts', 'twins' }) do
  local count = mends and call('HGET', notes, what)
  if count then
    mend(what, tonumber(count))
    call('HDEL', notes, what)
  end
end
local reply = { is_over and 1 or 0 }
for what, count in pairs(mended) do
  reply[#reply + 1] = what
  reply[#reply + 1] = count
end
return reply
