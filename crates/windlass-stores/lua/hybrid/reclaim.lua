-- reclaim: gives back what workers have taken that are gone: one that says so, or those whose heartbeat is over.
-- KEYS[1] stem    ARGV[1] worker, or nothing for all    returns how many workers
if ARGV[1] then
  clear(ARGV[1])
  return 1
end
local gone = 0
for _, worker in ipairs(call('SMEMBERS', stem .. 'workers')) do
  if call('EXISTS', stem .. 'beat:' .. worker) == 0 then
    clear(worker)
    gone = gone + 1
  end
end
return gone
