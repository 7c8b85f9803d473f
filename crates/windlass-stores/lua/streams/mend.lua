-- mend: a step of the sweep that finds what is half missing in a queue. A round is one phase after the
-- other; where it stands is kept in the hash `mend`.
-- ARGV[2] the leader's term, or empty for an operator; ARGV[3] how many items to look at, about;
-- ARGV[4] 1 to compare the counters of lanes also when the round is not over
-- returns {1 when the round is over, 1 when another is needed at once, what was mended, count, ...},
--   or 0: the term is stale
if ARGV[2] ~= '' and not is_current(queue, ARGV[2]) then return 0 end
local phases = {
  walk_records, walk_places('z', 'sr'), walk_places('dead', 'd'), walk_places('back', 'p'),
  walk_keys, walk_marks('cr'), walk_marks('g'), sample_values,
}
for lane = 0, 7 do
  phases[#phases + 1] = walk_waiting(lane)
  phases[#phases + 1] = walk_held(lane)
end

local before = call('HMGET', notes, 'phase', 'cursor', 'found', 'r', 'x', 'bad', 'began', 'moves')
local phase, cursor, found, began = tonumber(before[1] or '1'), before[2] or '0', tonumber(before[3] or '0'), before[7]
local moves = before[8] or '0'
if not before[1] then
  cursor, found, began = '0', 0, moves
else
  counted.r, counted.x, counted.bad = tonumber(before[4]), tonumber(before[5]), tonumber(before[6])
end

local left, is_over = tonumber(ARGV[3]), false
while left > 0 and not is_over do
  local looked
  cursor, looked = phases[phase](cursor, math.min(left, 100))
  left = left - looked - 1
  if cursor == '0' then phase = phase + 1 end
  is_over = phase > #phases
end

local lanes = tonumber(call('HGET', notes, 'lanes') or '0')
if lanes > 0 then call('HDEL', notes, 'lanes') end
mend('lanes', lanes)
for _, count in pairs(mended) do found = found + count end
if is_over then
  call('HDEL', notes, 'phase', 'cursor', 'found', 'r', 'x', 'bad', 'began')
  if found == 0 then call('HDEL', notes, 'torn') else tear(queue) end
  reckon(found == 0 and counted.bad == 0, began == (call('HGET', notes, 'moves') or '0'))
else
  call('HSET', notes, 'phase', phase, 'cursor', cursor, 'found', found, 'r', counted.r, 'x', counted.x,
    'bad', counted.bad, 'began', began)
  if ARGV[4] == '1' then reckon(false, false) end
end

local reply = { is_over and 1 or 0, call('HEXISTS', notes, 'torn') }
for what, count in pairs(mended) do
  reply[#reply + 1] = what
  reply[#reply + 1] = count
end
return reply
