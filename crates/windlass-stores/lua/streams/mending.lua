-- mending: finds what is half missing in a queue, a piece at a time, and puts it right.
--
-- There are two directions: every record stands where it says that it stands, and every place has its
-- record. Scripts keep both true, so what was looked at once stays good until someone breaks it.
local GRACE_MS = 60000
local queue = KEYS[1]
local d, notes = queue .. 'd', queue .. 'mend'
local mended = {}
local function mend(what, count)
  if count > 0 then mended[what] = (mended[what] or 0) + count end
end

-- What one round has counted of tasks that no index tells apart; `bad` cannot be counted.
local counted = { r = 0, x = 0, bad = 0 }

-- Entries are compared by time and number.
local function is_after(entry, edge)
  local ms, number = string.match(entry, '^(%d+)-(%d+)$')
  local edge_ms, edge_number = string.match(edge, '^(%d+)-(%d+)$')
  ms, edge_ms = tonumber(ms), tonumber(edge_ms)
  return ms > edge_ms or (ms == edge_ms and tonumber(number) > tonumber(edge_number))
end

-- What a lane has given out so far; the lane is made if it is not there.
local edges = {}
local function edge_of(lane)
  if not edges[lane] then
    if not group_of(queue, lane) then make_lane(queue, lane) end
    edges[lane] = group_of(queue, lane)['last-delivered-id']
  end
  return edges[lane]
end

-- How a pending record stands in its lane: held or waiting; nothing when it stands there no more.
local function standing(lane, entry)
  if not find(entry, '^%d+-%d+$') then return nil end
  if is_after(entry, edge_of(lane)) then
    return #call('XRANGE', queue .. 's:' .. lane, entry, entry) == 1 and 'waiting'
  end
  return #held_in(queue, lane, entry, entry, 1) == 1 and 'held'
end

-- Gives a pending task a new entry, as if it had been given back: whoever holds the old one is refused.
local function enter_anew(id, record, head)
  local lane, before = sub(record, head + 1, head + 1), sub(record, 1, head - 2)
  local entry = enter(queue, lane, id)
  if find(before, '^%d+-%d+$') and not is_after(entry, before) then
    -- The stream was made anew after the clock has gone back: a run's fence must not come again.
    call('XDEL', queue .. 's:' .. lane, entry)
    call('XSETID', queue .. 's:' .. lane, before)
    entry = enter(queue, lane, id)
  end
  call('HSET', d, id, entry .. ' ' .. sub(record, head))
  call('HINCRBY', queue .. 'st', 'p' .. lane, 1)
  call('ZADD', queue .. 'back', take('>I6', record, head + KEPT), id)
  if sub(record, head + 2, head + 2) == '1' then call('HSET', queue .. 'cr', id, entry) end
  ring(queue, lane)
  mend('entries', 1)
end

local function stands_pending(id, record, head)
  local entry = sub(record, 1, head - 2)
  local how = standing(sub(record, head + 1, head + 1), entry)
  if not how then
    enter_anew(id, record, head)
  elseif how == 'held' and sub(record, head + 2, head + 2) == '1' then
    mend('cancels', call('HSETNX', queue .. 'cr', id, entry))
  end
end

-- A finished record is removed through the list of its retention. One that its list has passed by, or
-- that none names, is removed here; a list that nobody knows of is known again.
local known_lists = {}
local function stands_finished(id, record, head)
  local until_ms = kept_until(record, head)
  local list, width = list_for(until_ms - updated_at(record, head))
  if not known_lists[list] then
    known_lists[list] = true
    local line = call('LINDEX', queue .. 'k:' .. list, 0)
    if line and not call('ZSCORE', queue .. 'ks', list) then
      call('ZADD', queue .. 'ks', take('>I6', line, 1), list)
      mend('lists', 1)
    end
  end
  -- Its list may remove it that much late.
  local latest = until_ms + width
  if latest + GRACE_MS <= now then
    local first = call('ZRANGE', queue .. 'ks', 0, 0, 'WITHSCORES')[2]
    if not first or tonumber(first) > latest then
      prune_one(queue, id, record, head)
      mend('leftovers', 1)
    end
  end
end

-- Names tasks in the journal again that it does not reach back to any more, as if they had been
-- submitted now: lists would not show them.
local function journal_anew(ids)
  local last = call('XREVRANGE', queue .. 'j', '+', '-', 'COUNT', 1)[1]
  local at = last and tonumber(string.match(last[1], '^%d+')) + 1 or 0
  if at < micros then at = micros end
  local text = {}
  for place = 1, #ids do
    local id, record = ids[place], call('HGET', d, ids[place])
    local head = head_of(record)
    text[place] = string.char(place) .. id
    call('HSET', d, id, sub(record, 1, head + 29) .. pack('>I7', at) .. string.char(place) .. sub(record, head + HEAD))
    if sub(record, head, head) == 'd' then call('ZADD', queue .. 'dead', at, id) end
  end
  call('XADD', queue .. 'j', string.format('%.0f-0', at), 'i', table.concat(text))
  mend('journal', #ids)
end

-- Every record stands where it says.
local function walk_records(cursor, most)
  local scanned = call('HSCAN', d, cursor, 'COUNT', most)
  local oldest = call('XRANGE', queue .. 'j', '-', '+', 'COUNT', 1)[1]
  local from, unnamed, seen = oldest and tonumber(string.match(oldest[1], '^%d+')), {}, {}
  for i = 1, #scanned[2], 2 do
    local id, record = scanned[2][i], scanned[2][i + 1]
    local head = not seen[id] and head_of(record)
    if head then
      local state = state_of(record, head)
      if state == 'p' then
        stands_pending(id, record, head)
      elseif state == 's' or state == 'r' then
        mend('times', call('ZADD', queue .. 'z', 'NX', take('>I6', record, head + 24), id))
      elseif state == 'd' then
        mend('dead', call('ZADD', queue .. 'dead', 'NX', take('>I7', record, head + 30), id))
      else
        stands_finished(id, record, head)
      end
      if counted[state] then counted[state] = counted[state] + 1 end
      if not from or take('>I7', record, head + 30) < from then unnamed[#unnamed + 1] = id end
    elseif not seen[id] then
      counted.bad = counted.bad + 1
    end
    seen[id] = true
  end
  local there = {}
  for i = 1, math.min(#unnamed, 200) do
    if call('HEXISTS', d, unnamed[i]) == 1 then there[#there + 1] = unnamed[i] end
  end
  if #there > 0 then journal_anew(there) end
  return scanned[1], #scanned[2] / 2
end

-- Every id in a sorted set has a record in one of these states.
local function walk_places(place, states)
  return function(cursor, most)
    local scanned = call('ZSCAN', queue .. place, cursor, 'COUNT', most)
    for i = 1, #scanned[2], 2 do
      local record = call('HGET', d, scanned[2][i])
      local head = record and head_of(record)
      if not head or not find(states, state_of(record, head), 1, true) then
        mend('places', call('ZREM', queue .. place, scanned[2][i]))
      end
    end
    return scanned[1], #scanned[2] / 2
  end
end

-- Every key has a holder that may hold it, and one that is held for a time ends by itself.
local function walk_keys(cursor, most)
  local scanned = call('HSCAN', queue .. 'u', cursor, 'COUNT', most)
  for i = 1, #scanned[2], 2 do
    local digest, held = scanned[2][i], scanned[2][i + 1]
    local until_ms = #held >= 22 and take('>I6', held, 17) or 0
    local record = call('HGET', d, sub(held, 1, 16))
    local head = record and head_of(record)
    if until_ms > 0 then
      mend('keys', call('ZADD', queue .. 'ut', 'NX', until_ms, digest))
    elseif not record then
      mend('keys', call('HDEL', queue .. 'u', digest))
    elseif head and find('cxd', state_of(record, head), 1, true) and has(byte(record, head + 3), ALONE) then
      local at = head + HEAD + (has(byte(record, head + 3), ONCE) and 16 or 0)
      if sub(record, at, at + 15) == digest then
        mend('keys', call('HDEL', queue .. 'u', digest))
      end
    end
  end
  return scanned[1], #scanned[2] / 2
end

-- Every request for a cancellation is of a run, and every progress of a task.
local function walk_marks(place)
  return function(cursor, most)
    local scanned = call('HSCAN', queue .. place, cursor, 'COUNT', most)
    for i = 1, #scanned[2], 2 do
      local record, own = call('HGET', d, scanned[2][i]), scanned[2][i + 1] .. ' p'
      if not record or (place == 'cr' and sub(record, 1, #own) ~= own) then
        mend('marks', call('HDEL', queue .. place, scanned[2][i]))
      end
    end
    return scanned[1], #scanned[2] / 2
  end
end

-- Large values have a record. Only a sample is looked at: a walk would read the values themselves.
local function sample_values()
  local fields = call('HRANDFIELD', queue .. 'b', 20)
  for i = 1, #fields do
    if call('HEXISTS', d, sub(fields[i], 1, 16)) == 0 then
      mend('values', call('HDEL', queue .. 'b', fields[i]))
    end
  end
  return '0', #fields
end

-- Every entry that waits in a lane is that of its record.
local function walk_waiting(lane)
  return function(cursor, most)
    if not group_of(queue, lane) then
      if call('HEXISTS', notes, 'lane:' .. lane) == 1 or call('EXISTS', queue .. 's:' .. lane) == 1 then
        make_lane(queue, lane)
      end
      return '0', 0
    end
    local from = edge_of(lane)
    if cursor ~= '0' and is_after(cursor, from) then from = cursor end
    local entries, ids = call('XRANGE', queue .. 's:' .. lane, '(' .. from, '+', 'COUNT', most), {}
    if #entries == 0 then return '0', 0 end
    for i = 1, #entries do ids[i] = entries[i][2][2] end
    local records = call('HMGET', d, unpack(ids))
    for i = 1, #entries do
      local own = entries[i][1] .. ' p'
      if not records[i] or sub(records[i], 1, #own) ~= own then
        call('XDEL', queue .. 's:' .. lane, entries[i][1])
        call('HINCRBY', queue .. 'st', 'p' .. lane, -1)
        mend('strays', 1)
      end
    end
    return #entries < most and '0' or entries[#entries][1], #entries
  end
end

-- Every entry that is held is that of its record. One that was cut out of its stream tells no id: it is
-- given up when its worker is.
local function walk_held(lane)
  return function(cursor, most)
    if not group_of(queue, lane) then return '0', 0 end
    local held = held_in(queue, lane, cursor == '0' and '-' or '(' .. cursor, '+', most)
    for i = 1, #held do
      local entry = held[i][1]
      local found = call('XRANGE', queue .. 's:' .. lane, entry, entry)[1]
      local record, own = found and call('HGET', d, found[2][2]), entry .. ' p'
      if not found then
        counted.bad = counted.bad + 1
      elseif not record or sub(record, 1, #own) ~= own then
        mend('strays', call('XACK', queue .. 's:' .. lane, 'w', entry))
      end
    end
    return #held < most and '0' or held[#held][1], #held
  end
end
