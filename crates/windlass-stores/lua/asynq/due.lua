-- due: when a duty has something to do in queues, at the earliest.
-- ARGV[2] the duty. returns {time, for each queue the time in ms, or '' when there is nothing}. A queue with a damaged key
--   is due now: the duty that visits it reports what is wrong.
local HOUR_MS = 3600000
-- For each duty the sorted sets that it works through: what stands before the queue, the set, how many ms a score is,
-- and what is added to that.
local SETS = {
  promote = { { '', 'scheduled', 1000, 0 }, { '', 'retry', 1000, 0 } },
  -- The score of a completed task is the first whole second after its end.
  prune = { { '', 'completed', 1000, -1000 }, { 'wl:', 'x', 1, 0 } },
  recover = { { '', 'lease', 1000, FOREIGN_GRACE_S * 1000 } },
  tend = { { 'wl:', 'ut', 1, 0 }, { 'wl:', 'lost', 1, HOUR_MS } },
}
local sets, reply = SETS[ARGV[2]], { now }
for k = 1, #KEYS do
  local due
  for i = 1, #sets do
    local stem, place, unit, after = unpack(sets[i])
    local first = redis.pcall('ZRANGE', stem .. KEYS[k] .. place, 0, 0, 'WITHSCORES')
    local at = first.err and 0 or first[2] and tonumber(first[2]) * unit + after
    if at and (not due or at < due) then due = at end
  end
  reply[k + 1] = due and number(due) or ''
end
return reply
