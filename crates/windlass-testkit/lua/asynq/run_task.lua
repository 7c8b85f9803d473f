-- run_task: one task goes to the end of the line; since when it is pending is not noted.
-- KEYS task, pending, groups    ARGV id, prefix of the queue, prefix of groups
-- returns 1 done, 0 no such task, -1 it runs, -2 it is pending
if redis.call("EXISTS", KEYS[1]) == 0 then
  return 0
end
local found = redis.call("HMGET", KEYS[1], "state", "group")
local state, group = found[1], found[2]
if state == "active" then
  return -1
elseif state == "pending" then
  return -2
elseif state == "aggregating" then
  if redis.call("ZREM", ARGV[3] .. group, ARGV[1]) == 0 then
    return redis.error_reply("task is not in its group")
  end
  if redis.call("ZCARD", ARGV[3] .. group) == 0 then
    redis.call("SREM", KEYS[3], group)
  end
elseif redis.call("ZREM", ARGV[2] .. state, ARGV[1]) == 0 then
  return redis.error_reply("task is not in " .. state)
end
redis.call("LPUSH", KEYS[2], ARGV[1])
redis.call("HSET", KEYS[1], "state", "pending")
return 1
