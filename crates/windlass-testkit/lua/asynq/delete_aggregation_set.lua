-- delete_aggregation_set: the tasks of a set are done, since the task that they came to is enqueued.
-- KEYS set, aggregation_sets    ARGV prefix of tasks    returns OK
for _, id in ipairs(redis.call("ZRANGE", KEYS[1], 0, -1)) do
  redis.call("DEL", ARGV[1] .. id)
end
redis.call("DEL", KEYS[1])
redis.call("ZREM", KEYS[2], KEYS[1])
return redis.status_reply("OK")
