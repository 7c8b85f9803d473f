-- reckoning: compares the counters of a queue with what is there.
--
-- How many wait in a lane is its length without what it has given out and not yet cut. How many are
-- finished is what remains of all records. Retrying and cancelled tasks have no index of their own: they
-- are counted by a round of the sweep during which none has become one or ceased to be.
local PASSED_MAX, CUTS_MAX = 1000, 20

local function set_counter(name, told, there)
  if there and told ~= there then
    call('HSET', queue .. 'st', name, string.format('%.0f', there))
    mend('counters', 1)
    return true
  end
end

-- How many tasks wait in a lane, if few enough have passed to tell, and how many are held.
local function count_lane(lane, told)
  local group, stream = group_of(queue, lane), queue .. 's:' .. lane
  if not group then return 0, 0 end
  local length, edge = call('XLEN', stream), group['last-delivered-id']
  local passed = #call('XRANGE', stream, '-', edge, 'COUNT', PASSED_MAX + 1)
  -- Nobody may have cut what lies behind a group that was made again; a cut takes 10,000 at most.
  for _ = 1, passed > PASSED_MAX and CUTS_MAX or 0 do
    local before = length
    cut(queue, lane)
    length = call('XLEN', stream)
    if length == before then break end
    passed = #call('XRANGE', stream, '-', edge, 'COUNT', PASSED_MAX + 1)
    if passed <= PASSED_MAX then break end
  end
  if passed <= PASSED_MAX then return length - passed, group.pending end
  -- A counter of 0 would hide what waits; one that is too high costs a claim that finds nothing.
  if told <= 0 and #call('XRANGE', stream, '(' .. edge, '+', 'COUNT', 1) == 1 then
    set_counter('p' .. lane, told, math.max(length - group.pending, 1))
  end
  return nil, group.pending
end

-- Retrying tasks among a few that wait for their time.
local function count_retrying()
  local ids, count = call('ZRANGE', queue .. 'z', 0, -1), 0
  local records = #ids > 0 and call('HMGET', d, unpack(ids)) or {}
  for i = 1, #ids do
    local head = records[i] and head_of(records[i])
    if head and sub(records[i], head, head) == 'r' then count = count + 1 end
  end
  return count
end

-- `is_clean`: a whole round has found nothing; `is_quiet`: what it has counted is still so.
local function reckon(is_clean, is_quiet)
  local told = call('HMGET', queue .. 'st', 'p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6', 'p7', 's', 'r', 'c', 'x', 'd')
  for i = 1, 13 do told[i] = tonumber(told[i] or '0') end
  local in_lanes, is_exact = 0, true
  for lane = 0, 7 do
    local waiting, held = count_lane(lane, told[lane + 1])
    is_exact = is_exact and waiting
    in_lanes = in_lanes + (waiting or 0) + held
    if set_counter('p' .. lane, told[lane + 1], waiting) then tear(queue) end
  end
  local later, dead = call('ZCARD', queue .. 'z'), call('ZCARD', queue .. 'dead')
  local finished = call('HLEN', d) - later - dead - in_lanes
  if not is_clean or not is_exact or finished < 0 then return end
  local retrying, cancelled = math.min(told[10], later), math.min(told[12], finished)
  if is_quiet then retrying, cancelled = counted.r, counted.x end
  if later <= 200 then retrying = count_retrying() end
  set_counter('s', told[9], later - retrying)
  set_counter('r', told[10], retrying)
  set_counter('c', told[11], finished - cancelled)
  set_counter('x', told[12], cancelled)
  set_counter('d', told[13], dead)
end
