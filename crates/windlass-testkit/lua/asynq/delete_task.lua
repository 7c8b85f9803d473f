-- delete_task: one task and its lock.
-- KEYS task, groups    ARGV id, prefix of the queue, prefix of groups
-- returns 1 done, 0 no such task, -1 it runs
if redis.call("EXISTS", KEYS[1]) == 0 then
  return 0
end
local found = redis.call("HMGET", KEYS[1], "state", "group", "unique_key")
local state, group, lock = found[1], found[2], found[3]
if state == "active" then
  return -1
elseif state == "pending" then
  if redis.call("LREM", ARGV[2] .. "pending", 0, ARGV[1]) == 0 then
    return redis.error_reply("task is not in pending")
  end
elseif state == "aggregating" then
  if redis.call("ZREM", ARGV[3] .. group, ARGV[1]) == 0 then
    return redis.error_reply("task is not in its group")
  end
  if redis.call("ZCARD", ARGV[3] .. group) == 0 then
    redis.call("SREM", KEYS[2], group)
  end
else
  if redis.call("ZREM", ARGV[2] .. state, ARGV[1]) == 0 then
    return redis.error_reply("task is not in " .. state)
  end
end
if lock and lock ~= "" and redis.call("GET", lock) == ARGV[1] then
  redis.call("DEL", lock)
end
return redis.call("DEL", KEYS[1])
