-- archive_task: one task into the archive. What the archive has too much of leaves it, its hashes stay.
-- KEYS task, archived, groups
-- ARGV id, now in s, cut-off in s, most tasks in the archive, prefix of the queue, prefix of groups
-- returns 1 done, 0 no such task, -1 it is there, -2 it runs
if redis.call("EXISTS", KEYS[1]) == 0 then
  return 0
end
local found = redis.call("HMGET", KEYS[1], "state", "group")
local state, group = found[1], found[2]
if state == "active" then
  return -2
elseif state == "archived" then
  return -1
elseif state == "pending" then
  if redis.call("LREM", ARGV[5] .. "pending", 0, ARGV[1]) == 0 then
    return redis.error_reply("task is not in pending")
  end
elseif state == "aggregating" then
  if redis.call("ZREM", ARGV[6] .. group, ARGV[1]) == 0 then
    return redis.error_reply("task is not in its group")
  end
  if redis.call("ZCARD", ARGV[6] .. group) == 0 then
    redis.call("SREM", KEYS[3], group)
  end
else
  if redis.call("ZREM", ARGV[5] .. state, ARGV[1]) == 0 then
    return redis.error_reply("task is not in " .. state)
  end
end
redis.call("ZADD", KEYS[2], ARGV[2], ARGV[1])
redis.call("HSET", KEYS[1], "state", "archived")
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[3])
redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -ARGV[4])
return 1
