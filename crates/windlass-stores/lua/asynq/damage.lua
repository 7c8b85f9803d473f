-- damage: which keys of a queue have another type than asynq and windlass give them.
-- ARGV from 2: workers. returns {key, type that it has, type that it should have, ...}
local queue, reply = KEYS[1], {}
local own = 'wl:' .. queue
local TYPES = {
  [queue] = {
    list = { 'pending', 'active' },
    zset = { 'lease', 'scheduled', 'retry', 'archived', 'completed', 'aggregation_sets' },
    set = { 'groups' },
  },
  [own] = {
    string = { 'n', 'term' },
    zset = { 'x', 'ut', 'lost' },
    hash = { 'i', 'u', 'mend' },
    set = { 'groups' },
    list = { 'bell' },
  },
}
local function compare(key, wanted)
  local has = call('TYPE', key).ok
  if has ~= 'none' and has ~= wanted then
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = key, has, wanted
  end
end
for stem, types in pairs(TYPES) do
  for wanted, names in pairs(types) do
    for i = 1, #names do compare(stem .. names[i], wanted) end
  end
end
for i = 2, #ARGV do compare(own .. 'w:' .. ARGV[i], 'set') end
return reply
