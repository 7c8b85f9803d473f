-- prelude: what the scripts of a queue share; put in front of each of them when it is loaded.
--
-- Every KEYS entry is the stem `<prefix>:{<queue>}:` of one queue. All keys of the queue begin with it
-- and so lie in one slot of a Cluster; `keys.rs` has the table of what follows it.
-- ARGV[1] is the time in ms that a test has set, or empty: then the server's own counts.
--
-- A record is `<entry id> <head><body>`, or `- <head><body>` when the task stands in no lane.
-- Places in the head, from its first byte: 0 state, 1 lane, 2 cancel, 3 marks, 4-5 revision,
-- 6-11 created, 12-17 updated, 18-23 pending since (or, once finished, kept until), 24-29 run at,
-- 30-36 submitted at (µs), 37 place in the submit. Times are ms, big-endian.
-- States: s scheduled, p pending or running, r retrying, c completed, x cancelled, d dead.
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local pack, take = struct.pack, struct.unpack
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = tonumber(ARGV[1]) or math.floor(micros / 1000)
local LATEST = 253402128000000
local HEAD = 38
local KEPT, ONCE, ALONE, TIMED, LARGE_IN, LARGE_OUT = 18, 1, 2, 4, 8, 16

local function has(marks, mark)
  return math.floor(marks / mark) % 2 == 1
end

-- Where the head of a record begins; nothing when it has none.
local function head_of(record)
  local space = find(record, ' ', 1, true)
  if space and #record >= space + HEAD and find('sprcxd', sub(record, space + 1, space + 1), 1, true) then
    return space + 1
  end
end

-- True when a finished record has been kept its time.
local function is_over(record, head)
  local state = sub(record, head, head)
  return (state == 'c' or state == 'x') and take('>I6', record, head + KEPT) <= now
end

-- Adds an entry to a lane; the lane's stream is made with its group, and is never removed again.
local made = {}
local function enter(queue, lane, id)
  local stream = queue .. 's:' .. lane
  if not made[stream] then
    made[stream] = true
    if call('EXISTS', stream) == 0 then
      call('XGROUP', 'CREATE', stream, 'w', '0', 'MKSTREAM')
    end
  end
  return call('XADD', stream, '*', 'i', id)
end

-- Rings for those that wait for a priority of a queue; once is enough until someone has heard it.
local function ring(queue, lane)
  local bell = queue .. 'bell:' .. math.floor(lane / 2)
  if call('LLEN', bell) == 0 then
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

-- Has finished tasks kept until an instant: a list for each length of retention, in the order of ending.
local function keep(queue, retention, until_ms, ids)
  local items, stamp = {}, pack('>I6', until_ms)
  for i = 1, #ids do items[i] = stamp .. ids[i] end
  if call('RPUSH', queue .. 'k:' .. retention, unpack(items)) == #items then
    call('ZADD', queue .. 'ks', until_ms, retention)
  end
end

-- Removes a finished record whose time is over, with what only it needed.
local function prune_one(queue, id, record, head)
  local marks = byte(record, head + 3)
  free_marked(queue, id, record, head, ONCE)
  call('HDEL', queue .. 'd', id)
  call('HDEL', queue .. 'g', id)
  if marks >= LARGE_IN then
    call('HDEL', queue .. 'b', id .. 'p', id .. 'r')
  end
  call('HINCRBY', queue .. 'st', sub(record, head, head), -1)
end

-- Cuts what is acknowledged off the head of a lane, never past the oldest entry that is held, and the
-- lane's claims with it. Never by length: that would drop what is held.
local function cut(queue, lane)
  local stream = queue .. 's:' .. lane
  local oldest = call('XPENDING', stream, 'w', '-', '+', 1)[1]
  local edge = oldest and oldest[1]
  if not edge then
    local group = call('XINFO', 'GROUPS', stream)[1]
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' then edge = group[i + 1] end
    end
  end
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
  if not call('XPENDING', queue .. 's:' .. lane, 'w', entry, entry, 1)[1] then return false end
  if not claimed_at then return true end
  local claim = call('XREVRANGE', queue .. 'c:' .. lane, entry, '-', 'COUNT', 1)[1]
  return claim ~= nil and tonumber(claim[2][2]) == claimed_at
end

-- Refuses a leader of an older term; true when it may go on.
local function is_current(queue, term)
  local highest = call('GET', queue .. 'term')
  if highest and tonumber(highest) > tonumber(term) then
    return false
  end
  if highest ~= term then
    call('SET', queue .. 'term', term)
  end
  return true
end
