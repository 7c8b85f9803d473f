-- list: read a page of the tasks that stand in one place, the newest first.
-- ARGV[2] the place after the stem; ARGV[3] at most; ARGV[4] where to go on: for a sorted set score and id of
--   the last task seen in ARGV[4] and ARGV[5]; for a list how many tasks were older than the last one seen in
--   ARGV[4], and behind it the ids of the last ones seen, the very last first; empty to begin
-- returns {how many tasks of the place come after this page, how many ids were looked at, tasks as they stand ...}
local queue, place, most = KEYS[1], KEYS[1] .. ARGV[2], tonumber(ARGV[3])
local is_list = ARGV[2] == 'pending' or ARGV[2] == 'active'

-- Compares bytes; the server's own order of text may be another.
local function is_before(one, other)
  local length = math.min(#one, #other)
  for i = 1, length do
    local a, b = byte(one, i), byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- Where a walk down a sorted set goes on: behind score and id, whether that task is still there or not.
local function rank_after(score, id)
  local low, high = 0, call('ZCARD', place)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call('ZREVRANGE', place, middle, middle, 'WITHSCORES')
    local at = tonumber(found[2])
    if at < score or (at == score and is_before(found[1], id)) then high = middle else low = middle + 1 end
  end
  return low
end

local start, seen = 0, {}
if is_list and ARGV[4] ~= '' then
  local found
  for i = 5, #ARGV do
    seen[ARGV[i]] = true
    found = found or call('LPOS', place, ARGV[i])
  end
  -- None of them is there any more: newer ones are only added in front of where the walk has been.
  start = found and found + 1 or math.max(0, call('LLEN', place) - tonumber(ARGV[4]))
elseif ARGV[4] ~= '' then
  start = rank_after(tonumber(ARGV[4]), ARGV[5])
end

local range, length = is_list and 'LRANGE' or 'ZREVRANGE', call(is_list and 'LLEN' or 'ZCARD', place)
local ids, reply, bytes, looked = call(range, place, start, start + most - 1), { 0, 0 }, 0, 0
for i = 1, #ids do
  if bytes >= ANSWER_BYTES_MAX then break end
  looked = i
  local row = not seen[ids[i]] and look(queue, ids[i], false)
  if row then
    bytes = bytes + bytes_of(row)
    -- How many tasks are older, should the walk end here.
    table.insert(row, 1, length - start - i)
    reply[#reply + 1] = row
  end
end
reply[1], reply[2] = math.max(0, length - start - looked), looked
return reply
