-- damage: find keys of a queue that have another type than windlass uses. The number of possible names bounds the work.
-- Digits of the longest retention in ms.
local DIGITS_MAX = 15
local queue = KEYS[1]
compare_all(queue, {
  { 'hash', 'd', 'b', 'g', 'st', 'mend', 'u', 'cr' },
  { 'zset', 'z', 'dead', 'back', 'ks', 'ut', 'lost' },
  { 'stream', 'j' },
  { 'string', 'watch' },
})
for lane = 0, 7 do compare_all(queue, { { 'stream', 's:' .. lane, 'c:' .. lane } }) end
for priority = 0, 3 do compare('list', queue .. 'bell:' .. priority) end
compare_term(queue)

-- Lists of retentions: all names that `list_for` makes, because a list that could not be written is not in `ks`. One
-- EXISTS covers about a hundred names, so a queue costs 15 commands for them and few of the names exist.
local width = 1
for digits = 1, DIGITS_MAX do
  local lists = {}
  for step = digits == 1 and 0 or 10, 99 do
    lists[#lists + 1] = queue .. 'k:' .. string.format('%.0f', step * width)
  end
  if call('EXISTS', unpack(lists)) > 0 then
    for i = 1, #lists do compare('list', lists[i]) end
  end
  width = width * 10
end
return damaged
