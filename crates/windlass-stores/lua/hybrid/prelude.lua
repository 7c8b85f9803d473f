-- prelude: what the broker's scripts share; put in front of each when it is loaded. KEYS[1] is the stem of all keys.
--
-- A reference is `queue:lane:position:lo:size`, all numbers; it leads to a row of `ready` in the ledger. A size of 0 says
-- that the row is gone: its reference may be anywhere in a list and is dropped when it is taken. The list of a
-- lane goes from the last position, at its left, to the first, at its right, where it is taken from.
local call = redis.call
local stem = KEYS[1]

local function list_of(reference)
  return stem .. 'l:' .. string.match(reference, '^%d+:%d+')
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

-- Puts a reference where it belongs in its list, unless it is there. Most belong to one of the ends; the search for
-- others begins at the left, where what several processes push at once lies.
local function put(reference)
  local list = list_of(reference)
  local last = call('LINDEX', list, 0)
  if not last or is_before(last, reference) then
    call('LPUSH', list, reference)
    return
  end
  local first = call('LINDEX', list, -1)
  if is_before(reference, first) then
    call('RPUSH', list, reference)
    return
  end
  -- Somewhere from `left` on up to `right` is the first one that is not taken after it.
  local left, right, length = 0, 1, call('LLEN', list)
  while right < length and is_before(reference, call('LINDEX', list, right)) do
    left, right = right, right * 2
  end
  right = math.min(right, length - 1)
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
    call('LINSERT', list, 'BEFORE', next_one, reference)
  elseif next_one ~= reference then
    -- The same row, of another size: this is the newer.
    call('LSET', list, left, reference)
  end
end

-- Wakes one who waits for a queue.
local function ring(queue)
  local bell = stem .. 'bell:' .. queue
  if call('LLEN', bell) == 0 then
    call('LPUSH', bell, 1)
  end
end

-- Gives references back that a worker has taken and will not claim; forgets the worker's lists.
local function clear(worker)
  local taken = stem .. 'taken:' .. worker
  for _, reference in ipairs(call('LRANGE', taken, 0, -1)) do
    put(reference)
    ring(queue_of(reference))
  end
  call('DEL', taken, stem .. 'held:' .. worker, stem .. 'beat:' .. worker)
  call('SREM', stem .. 'workers', worker)
end
