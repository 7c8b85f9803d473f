-- current_stats: the counts of a queue.
-- KEYS pending, active, scheduled, retry, archived, completed, processed of the day, failed of the day,
--      processed, failed, paused, groups    ARGV prefix of tasks, prefix of groups
-- returns sizes of the six, the four counters, 1 when paused, groups, tasks in them, and since when
--         the oldest is pending in ns (0 when unknown)
local found = {redis.call("LLEN", KEYS[1]), redis.call("LLEN", KEYS[2])}
for at = 3, 6 do
  table.insert(found, redis.call("ZCARD", KEYS[at]))
end
for at = 7, 10 do
  table.insert(found, tonumber(redis.call("GET", KEYS[at]) or 0))
end
table.insert(found, redis.call("EXISTS", KEYS[11]))
local names, members = redis.call("SMEMBERS", KEYS[12]), 0
for _, name in ipairs(names) do
  members = members + redis.call("ZCARD", ARGV[2] .. name)
end
table.insert(found, #names)
table.insert(found, members)
local oldest = redis.call("LRANGE", KEYS[1], -1, -1)[1]
local since = oldest and redis.call("HGET", ARGV[1] .. oldest, "pending_since")
table.insert(found, tostring(since or 0))
return found
