-- reclaim_stale_aggregation_sets: puts the tasks of abandoned sets back into their groups, but not the
-- groups' names into `groups`: asynq's own defect.
-- KEYS aggregation_sets    ARGV now in s    returns OK
for _, set in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])) do
  local group = string.match(set, "^(.*):[^:]*$")
  local members = redis.call("ZRANGE", set, 0, -1, "WITHSCORES")
  for at = 1, #members, 2 do
    redis.call("ZADD", group, members[at + 1], members[at])
  end
  redis.call("DEL", set)
end
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])
return redis.status_reply("OK")
