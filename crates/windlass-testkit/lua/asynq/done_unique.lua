-- done_unique: the same, and its lock is free.
-- KEYS active, lease, task, processed of the day, processed, lock
-- ARGV id, end of the day's counter in s, largest counter    returns OK
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("ZREM", KEYS[2], ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("DEL", KEYS[3]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("INCR", KEYS[4]) == 1 then
  redis.call("EXPIREAT", KEYS[4], ARGV[2])
end
if redis.call("GET", KEYS[5]) == ARGV[3] then
  redis.call("SET", KEYS[5], 1)
else
  redis.call("INCR", KEYS[5])
end
if redis.call("GET", KEYS[6]) == ARGV[1] then
  redis.call("DEL", KEYS[6])
end
return redis.status_reply("OK")
