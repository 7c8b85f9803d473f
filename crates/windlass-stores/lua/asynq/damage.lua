-- damage: find keys of a queue that have another type than asynq and windlass use. ARGV from 2: workers.
local queue = KEYS[1]
local own = 'wl:' .. queue
compare_all(queue, {
  { 'list', 'pending', 'active' },
  { 'zset', 'lease', 'scheduled', 'retry', 'archived', 'completed', 'aggregation_sets' },
  { 'set', 'groups' },
})
compare_all(own, {
  { 'string', 'n' },
  { 'zset', 'x', 'ut', 'lost' },
  { 'hash', 'i', 'u', 'mend' },
  { 'set', 'groups' },
  { 'list', 'bell' },
})
compare_term(own)
for i = 2, #ARGV do compare('set', own .. 'w:' .. ARGV[i]) end
return damaged
