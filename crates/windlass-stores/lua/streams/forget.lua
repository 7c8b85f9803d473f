-- forget: remove all that is left of a queue that is idle for long. The next write creates the queue again.
-- ARGV[2] the leader's term, ARGV[3] ms that it must have been idle
-- returns 1 when it was removed, 2 when it is not idle (any more), or 0: the term is stale
local queue = KEYS[1]
if not is_current(queue, ARGV[2]) then return 0 end
local since = idle_since(queue)
if not since or now - since <= tonumber(ARGV[3]) then return 2 end
local lists = call('ZRANGE', queue .. 'ks', 0, -1)
for i = 1, #lists do call('DEL', queue .. 'k:' .. lists[i]) end
for lane = 0, 7 do call('DEL', queue .. 's:' .. lane, queue .. 'c:' .. lane) end
for priority = 0, 3 do call('DEL', queue .. 'bell:' .. priority) end
for _, name in ipairs({ 'd', 'b', 'g', 'z', 'dead', 'ks', 'u', 'ut', 'cr', 'back', 'lost', 'j', 'st', 'mend', 'term' }) do
  call('DEL', queue .. name)
end
return 1
