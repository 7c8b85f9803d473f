-- forward: tasks whose time has come, a hundred at most; one with a group goes into its group, of
-- which `groups` is not told: asynq's own defect.
-- KEYS scheduled or retry, pending    ARGV now in s, prefix of tasks, now in ns, prefix of groups
-- returns how many
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1], "LIMIT", 0, 100)
for _, id in ipairs(ids) do
  local task = ARGV[2] .. id
  local group = redis.call("HGET", task, "group")
  if group and group ~= "" then
    redis.call("ZADD", ARGV[4] .. group, ARGV[1], id)
    redis.call("ZREM", KEYS[1], id)
    redis.call("HSET", task, "state", "aggregating")
  else
    redis.call("LPUSH", KEYS[2], id)
    redis.call("ZREM", KEYS[1], id)
    redis.call("HSET", task, "state", "pending", "pending_since", ARGV[3])
  end
end
return #ids
