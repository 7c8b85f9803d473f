-- damage: find keys of documents that have another type than windlass uses.
-- KEYS[1] the stem of the fleet; ARGV from 2: classes.
local fleet = KEYS[1]
for i = 2, #ARGV do
  compare('hash', fleet .. 'doc:' .. ARGV[i])
  compare('zset', fleet .. 'names:' .. ARGV[i])
end
return damaged
