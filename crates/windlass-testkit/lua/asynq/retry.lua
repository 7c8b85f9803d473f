-- retry: a run that failed goes on later.
-- KEYS task, active, lease, retry, processed of the day, failed of the day, processed, failed
-- ARGV id, message, due in s, end of the day's counters in s, 1 when it counts, largest counter
-- returns OK
if redis.call("LREM", KEYS[2], 0, ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("ZREM", KEYS[3], ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
redis.call("ZADD", KEYS[4], ARGV[3], ARGV[1])
redis.call("HSET", KEYS[1], "msg", ARGV[2], "state", "retry")
if ARGV[5] == "1" then
  if redis.call("INCR", KEYS[5]) == 1 then
    redis.call("EXPIREAT", KEYS[5], ARGV[4])
  end
  if redis.call("GET", KEYS[7]) == ARGV[6] then
    redis.call("SET", KEYS[7], 1)
  else
    redis.call("INCR", KEYS[7])
  end
  if redis.call("INCR", KEYS[6]) == 1 then
    redis.call("EXPIREAT", KEYS[6], ARGV[4])
  end
  if redis.call("GET", KEYS[8]) == ARGV[6] then
    redis.call("SET", KEYS[8], 1)
  else
    redis.call("INCR", KEYS[8])
  end
end
return redis.status_reply("OK")
