-- prelude: what the scripts of a queue share; put in front of each of them when it is loaded.
--
-- Every KEYS entry is the stem `<prefix>:{<queue>}:` of one queue. All keys of the queue begin with it
-- and so lie in one slot of a Cluster; `keys.rs` has the table of what follows it.
--
-- A record is `<entry id> <head><body>`, or `- <head><body>` when the task stands in no lane. A success
-- leaves the record of its run as it was, between what has changed and what came of it:
-- `+<updated (6)><kept until (6)><entry id> <head><body><tail>`, with `*` for `+` when its result is large.
-- So the dearest thing in a script, making long strings, is done once.
-- Places in the head, from its first byte: 0 state, 1 lane, 2 cancel, 3 marks, 4-5 revision,
-- 6-11 created, 12-17 updated, 18-23 pending since (or, once finished, kept until), 24-29 run at,
-- 30-36 submitted at (µs), 37 place in the submit. Times are ms, big-endian.
-- States: s scheduled, p pending or running, r retrying, c completed, x cancelled, d dead.
local HEAD = 38
local KEPT, ONCE, ALONE, TIMED, LARGE_IN, LARGE_OUT = 18, 1, 2, 4, 8, 16

local function has(marks, mark)
  return math.floor(marks / mark) % 2 == 1
end

-- True for the record of a success as `apply` writes it.
local function is_success(record)
  local first = byte(record, 1)
  return first == 43 or first == 42
end

-- Where the head of a record begins; nothing when it has none.
local function head_of(record)
  local space = find(record, ' ', is_success(record) and 14 or 1, true)
  if space and #record >= space + HEAD and find(record, '^[sprcxd][0-7]', space + 1) then
    return space + 1
  end
end

-- The state that a record tells.
local function state_of(record, head)
  if is_success(record) then return 'c' end
  return sub(record, head, head)
end

-- When a record was last changed.
local function updated_at(record, head)
  return take('>I6', record, is_success(record) and 2 or head + 12)
end

-- Until when a finished record is kept.
local function kept_until(record, head)
  return take('>I6', record, is_success(record) and 8 or head + KEPT)
end

-- True when a finished record has been kept its time.
local function is_over(record, head)
  local state = state_of(record, head)
  return (state == 'c' or state == 'x') and kept_until(record, head) <= now
end

-- True when a record is of a task that waits or runs under this entry.
local function stands_under(record, entry)
  local length = #entry
  return find(record, entry, 1, true) == 1 and byte(record, length + 1) == 32 and byte(record, length + 2) == 112
end

-- Has the sweep go through the whole queue at once, and from its beginning: something is half missing.
local function tear(queue)
  call('HSET', queue .. 'mend', 'torn', '1')
  call('HDEL', queue .. 'mend', 'phase')
end

-- Makes a lane, or makes it again where someone has taken its stream or its group away. Nothing that
-- was there before is given out again: it may be held by someone, and its entry would be a fence for
-- two. The sweep finds such tasks by their records, and gives them new entries.
local function make_lane(queue, lane)
  local stream, notes = queue .. 's:' .. lane, queue .. 'mend'
  local was_there = call('EXISTS', stream) == 1
  call('XGROUP', 'CREATE', stream, 'w', '$', 'MKSTREAM')
  if call('HSETNX', notes, 'lane:' .. lane, '1') == 0 or was_there then
    call('HINCRBY', notes, 'lanes', 1)
    tear(queue)
  end
end

-- The group of a lane as the server tells it; nothing when there is none (any more).
local function group_of(queue, lane)
  local stream = queue .. 's:' .. lane
  local groups = call('EXISTS', stream) == 1 and call('XINFO', 'GROUPS', stream) or {}
  for g = 1, #groups do
    local group = {}
    for i = 1, #groups[g], 2 do group[groups[g][i]] = groups[g][i + 1] end
    if group.name == 'w' then return group end
  end
end

-- True for an answer that says that a lane or its group is not there.
local function is_torn(answer)
  return answer and answer.err and find(answer.err, 'NOGROUP', 1, true)
end

-- Entries of a lane that are held, from one to another: {entry, worker, ms, times} of each.
local function held_in(queue, lane, from, to, most, ...)
  local held = redis.pcall('XPENDING', queue .. 's:' .. lane, 'w', from, to, most, ...)
  if is_torn(held) then make_lane(queue, lane) end
  return held.err and {} or held
end

-- A lane's stream; it is made with its group, and is never removed again.
local made = {}
local function stream_of(queue, lane)
  local stream = queue .. 's:' .. lane
  if not made[stream] then
    made[stream] = true
    if call('EXISTS', stream) == 0 then make_lane(queue, lane) end
  end
  return stream
end

-- Adds an entry to a lane.
local function enter(queue, lane, id)
  return call('XADD', stream_of(queue, lane), '*', 'i', id)
end

-- Notes that tasks have become or ceased to be retrying or cancelled, or were removed: a sweep that
-- counts these meanwhile cannot tell how many there are.
local has_moved = {}
local function moved(queue)
  if not has_moved[queue] then
    has_moved[queue] = true
    call('HINCRBY', queue .. 'mend', 'moves', 1)
  end
end

-- Rings for those that wait for a priority of a queue; once is enough until someone has heard it. A bell that cannot
-- be rung stops nothing: waiters look by themselves every few seconds.
local function ring(queue, lane)
  local bell = queue .. 'bell:' .. math.floor(lane / 2)
  if redis.pcall('LLEN', bell) == 0 then
    call('LPUSH', bell, '1')
  end
end

-- Frees a key if this task holds it.
local function free(queue, digest, id)
  local held = call('HGET', queue .. 'u', digest)
  if held and sub(held, 1, 16) == id then
    call('HDEL', queue .. 'u', digest)
    if take('>I6', held, 17) > 0 then
      call('ZREM', queue .. 'ut', digest)
    end
  end
end

-- Frees the keys of a record that hold one of these marks.
local function free_marked(queue, id, record, head, wanted)
  local marks = byte(record, head + 3)
  local at = head + HEAD
  if has(marks, ONCE) then
    if has(wanted, ONCE) then free(queue, sub(record, at, at + 15), id) end
    at = at + 16
  end
  if (has(marks, ALONE) and has(wanted, ALONE)) or (has(marks, TIMED) and has(wanted, TIMED)) then
    free(queue, sub(record, at, at + 15), id)
  end
end

-- How far lengths of retention in one list lie apart, at most a tenth of them and at least a millisecond, and the
-- name of their list. Rounding bounds the lists: there are ninety for each power of ten. A record whose line
-- stands behind one that is kept longer is removed at most that much late; reads hide it at its time.
local function list_for(retention)
  retention = tonumber(retention)
  local width = 1
  while width * 100 <= retention do width = width * 10 end
  return string.format('%.0f', retention - retention % width), width
end

-- The counters of a queue by name, how many tasks wait by them, and whether some run: those are all records that no
-- counter tells of. An idle queue is known to be so by two commands.
local function counters_of(queue)
  local fields, counters = call('HGETALL', queue .. 'st'), {}
  local waiting, total = 0, 0
  for i = 1, #fields, 2 do
    local name, count = fields[i], tonumber(fields[i + 1]) or 0
    counters[name] = count
    if name ~= 'paused' then total = total + count end
    if byte(name, 1) == 112 and #name == 2 then waiting = waiting + count end
  end
  return counters, waiting, call('HLEN', queue .. 'd') ~= total
end

-- Raises an error for a queue of which a key has another type: it must be known before anything is changed.
local function check_keys(queue)
  for _, name in ipairs({ 'st', 'cr', 'u', 'b', 'g', 'mend' }) do call('HLEN', queue .. name) end
  for _, name in ipairs({ 'z', 'dead', 'back', 'ut' }) do call('ZCARD', queue .. name) end
end

-- Has finished tasks kept until an instant: a list for lengths of retention that are about equal, in the order
-- of ending, with a line for those that ended together. Changes nothing when it raises an error.
local function keep(queue, retention, until_ms, ids)
  local list = list_for(retention)
  if call('RPUSH', queue .. 'k:' .. list, pack('>I6', until_ms) .. ids) == 1 then
    local added = redis.pcall('ZADD', queue .. 'ks', until_ms, list)
    if type(added) == 'table' and added.err then
      -- A list that stands in no index would never be looked at.
      call('DEL', queue .. 'k:' .. list)
      raise(added.err)
    end
  end
end

-- Removes a finished record whose time is over, with what only it needed.
local function prune_one(queue, id, record, head)
  local marks = byte(record, head + 3)
  free_marked(queue, id, record, head, ONCE)
  call('HDEL', queue .. 'd', id)
  call('HDEL', queue .. 'g', id)
  if marks >= LARGE_IN or byte(record, 1) == 42 then
    call('HDEL', queue .. 'b', id .. 'p', id .. 'r')
  end
  call('HINCRBY', queue .. 'st', state_of(record, head), -1)
  moved(queue)
end

-- Cuts what is acknowledged off the head of a lane, never past the oldest entry that is held, and the
-- lane's claims with it. Never by length: that would drop what is held.
local function cut(queue, lane)
  local stream = queue .. 's:' .. lane
  local oldest = held_in(queue, lane, '-', '+', 1)[1]
  local edge = oldest and oldest[1] or group_of(queue, lane)['last-delivered-id']
  call('XTRIM', stream, 'MINID', '~', edge)
  local claim = call('XREVRANGE', queue .. 'c:' .. lane, edge, '-', 'COUNT', 1)[1]
  if claim then
    call('XTRIM', queue .. 'c:' .. lane, 'MINID', '~', claim[1])
  end
  return oldest and oldest[3] or 0
end

-- True when an entry of a lane is held since a claim of this time (of any, if it is not known). The entry
-- alone does not tell: a server that was restarted without its last moments gives out again what it does
-- not know to have given out, later.
local function is_held_since(queue, lane, entry, claimed_at)
  if not held_in(queue, lane, entry, entry, 1)[1] then return false end
  if not claimed_at then return true end
  local claim = call('XREVRANGE', queue .. 'c:' .. lane, entry, '-', 'COUNT', 1)[1]
  return claim ~= nil and tonumber(claim[2][2]) == claimed_at
end
