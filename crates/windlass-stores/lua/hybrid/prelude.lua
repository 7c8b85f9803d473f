-- prelude: what the broker's scripts share; put in front of each when it is loaded. KEYS[1] is the stem of all keys.
--
-- A reference is `queue:lane:position:lo:size`, all numbers; it leads to a row of `ready` in the ledger. A size of 0 says
-- that the row is gone: its reference may be anywhere in a list and is dropped when it is taken. The list of a
-- lane goes from the last position, at its left, to the first, at its right, where it is taken from.
local call = redis.call
local stem = KEYS[1]

-- The list of a reference's lane; nothing for what is no reference.
local function list_of(reference)
  local lane = string.match(reference, '^(%d+:%d+):%d+:%d+:%d+$')
  return lane and stem .. 'l:' .. lane
end

local function queue_of(reference)
  return string.match(reference, '^%d+')
end

local function size_of(reference)
  return tonumber(string.match(reference, '%d+$'))
end

-- True when `one` is to be taken before `other`. Pieces of what was one row share its position.
local function is_before(one, other)
  local position, lo = string.match(one, '^%d+:%d+:(%d+):(%d+)')
  local other_position, other_lo = string.match(other, '^%d+:%d+:(%d+):(%d+)')
  if position ~= other_position then
    return tonumber(position) < tonumber(other_position)
  end
  return tonumber(lo) < tonumber(other_lo)
end

-- What tells a row from all others.
local function row_of(reference)
  return string.match(reference, '^(.+):%d+$')
end

-- Puts a reference at the index `at` from the left, `behind` being how many are to its right. No command inserts at an
-- index, and the one that does so by a neighbour looks for it from the left: near the right end the few that are taken
-- before it are taken off and put back.
local function insert(list, at, behind, reference)
  if behind > at or behind > 1000 then
    call('LINSERT', list, 'BEFORE', call('LINDEX', list, at), reference)
    return
  end
  local first_ones = call('LRANGE', list, -behind, -1)
  call('LTRIM', list, 0, -behind - 1)
  call('RPUSH', list, reference)
  for i = 1, #first_ones do
    call('RPUSH', list, first_ones[i])
  end
end

-- Puts a reference where it belongs in its list, unless it is there. Most belong to one of the ends; the search for
-- others begins at both: what several processes push at once lies at the left, what is given back at the right.
local function put(reference)
  local list = list_of(reference)
  if not list then
    return
  end
  local last = call('LINDEX', list, 0)
  if not last or is_before(last, reference) then
    call('LPUSH', list, reference)
    return
  end
  if is_before(reference, call('LINDEX', list, -1)) then
    call('RPUSH', list, reference)
    return
  end
  -- Somewhere from `left` on up to `right` is the first one, from the left, that is not taken after it.
  local length, step = call('LLEN', list), 1
  local left, right = 0, length - 1
  while step < length do
    if not is_before(reference, call('LINDEX', list, step)) then
      right = math.min(right, step)
      break
    end
    left = math.max(left, step + 1)
    if is_before(reference, call('LINDEX', list, -1 - step)) then
      left = math.max(left, length - step)
      break
    end
    right = math.min(right, length - 1 - step)
    step = step * 2
  end
  while left < right do
    local middle = math.floor((left + right) / 2)
    if is_before(reference, call('LINDEX', list, middle)) then
      left = middle + 1
    else
      right = middle
    end
  end
  local next_one = call('LINDEX', list, left)
  if is_before(next_one, reference) then
    insert(list, left, length - left, reference)
  elseif next_one ~= reference then
    -- The same row, of another size: this is the newer.
    call('LSET', list, left, reference)
  end
end

-- Moves the next reference of a list to another; what is gone, or is no reference, is dropped.
local function move_next(list, to)
  while true do
    local reference = call('RPOPLPUSH', list, to)
    if not reference or (list_of(reference) and call('ZREM', stem .. 'gone', row_of(reference)) == 0) then
      return reference
    end
    call('LPOP', to)
  end
end

-- Rests. Who takes a reference for fewer tasks than it leads to leaves some over, which come back as a reference of their
-- own when the ledger has answered. Until then nobody takes what comes behind them in their queue. `rests` has what is to
-- come, `queue:lane:position:end:lo` of the reference that was taken, by the time since when; a rest has the same end.
local function end_of(reference)
  local place, lo, size = string.match(reference, '^(%d+:%d+:%d+):(%d+):(%d+)$')
  return place .. ':' .. string.format('%.0f', lo + size) .. ':', lo
end

local function rest_of(reference)
  local place, lo = end_of(reference)
  return place .. lo
end

-- How long a rest is waited for: a worker may have died over it.
local REST_MS = 250

local function now_ms()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function await_rest(reference)
  call('ZADD', stem .. 'rests', now_ms(), rest_of(reference))
  call('PEXPIRE', stem .. 'rests', REST_MS)
end

-- Those that are to come; few, and nearly always none.
local function rests_to_come()
  local rests = stem .. 'rests'
  if call('EXISTS', rests) == 0 then
    return {}
  end
  local now = now_ms()
  call('ZREMRANGEBYSCORE', rests, '-inf', now - REST_MS)
  -- Its clock was set back.
  call('ZREMRANGEBYSCORE', rests, now + 1, '+inf')
  return call('ZRANGE', rests, 0, -1)
end

-- The rest that is to come in a lane, if any.
local function rest_in(rests, lane)
  for _, rest in ipairs(rests) do
    if string.sub(rest, 1, #lane + 1) == lane .. ':' then
      return rest
    end
  end
end

-- Wakes one who waits for a queue.
local function ring(queue)
  local bell = stem .. 'bell:' .. queue
  if call('LLEN', bell) == 0 then
    call('LPUSH', bell, 1)
  end
end

-- Gives the references of a worker's list back.
local function give_back(list)
  for _, reference in ipairs(call('LRANGE', list, 0, -1)) do
    call('ZREM', stem .. 'rests', rest_of(reference))
    if list_of(reference) then
      put(reference)
      ring(queue_of(reference))
    end
  end
  call('DEL', list)
end

-- Gives references back that a worker has and will not claim; forgets the worker's lists.
local function clear(worker)
  give_back(stem .. 'taken:' .. worker)
  give_back(stem .. 'moved:' .. worker)
  call('DEL', stem .. 'held:' .. worker, stem .. 'beat:' .. worker)
  call('SREM', stem .. 'workers', worker)
end
