-- count: how many references there are by lane, in lists and with workers that have not claimed them yet.
-- KEYS[1] stem    ARGV lanes (`queue:lane`)    returns a count for each
local counts = {}
for i = 1, #ARGV do
  counts[ARGV[i]] = call('LLEN', stem .. 'l:' .. ARGV[i])
end
for _, worker in ipairs(call('SMEMBERS', stem .. 'workers')) do
  for _, list in ipairs({ 'taken:', 'moved:' }) do
    for _, reference in ipairs(call('LRANGE', stem .. list .. worker, 0, -1)) do
      local lane = string.match(reference, '^%d+:%d+')
      if counts[lane] then
        counts[lane] = counts[lane] + 1
      end
    end
  end
end
local found = {}
for i = 1, #ARGV do
  found[i] = counts[ARGV[i]]
end
return found
