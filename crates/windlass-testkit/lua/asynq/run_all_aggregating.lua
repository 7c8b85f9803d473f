-- run_all_aggregating: all of a group go to the end of the line.
-- KEYS group, pending, groups    ARGV prefix of tasks, name of the group    returns how many
local ids = redis.call("ZRANGE", KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  redis.call("LPUSH", KEYS[2], id)
  redis.call("HSET", ARGV[1] .. id, "state", "pending")
end
redis.call("DEL", KEYS[1])
redis.call("SREM", KEYS[3], ARGV[2])
return #ids
