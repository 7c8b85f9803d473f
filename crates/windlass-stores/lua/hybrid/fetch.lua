-- fetch: moves the next reference of some lanes to what a worker's next claim finds first. It is sent right behind a wait
-- for a bell, so that whoever is woken knows where to go. What leads to many tasks stays where it is: of that others may
-- have some too.
-- KEYS[1] stem    ARGV[1] worker; then the lanes in the order of claiming (`queue:lane`)    returns nothing, or {worker, reference}
local moved, rests = stem .. 'moved:' .. ARGV[1], rests_to_come()
for i = 2, #ARGV do
  local list = stem .. 'l:' .. ARGV[i]
  local next_one = call('LINDEX', list, -1)
  if next_one and call('SISMEMBER', stem .. 'paused', queue_of(ARGV[i])) == 0 then
    local reference = size_of(next_one) == 1 and move_next(list, moved)
    if not reference then
      return {}
    end
    -- A broker that has lost everything knows of the worker again only with its next heartbeat.
    call('SADD', stem .. 'workers', ARGV[1])
    return { ARGV[1], reference }
  end
  -- What comes behind it is for a claim to find.
  if rest_in(rests, ARGV[i]) then
    return {}
  end
end
return {}
