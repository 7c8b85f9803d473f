-- archive: a run that failed for good. Old and surplus tasks of the archive go with it.
-- KEYS task, active, lease, archived, processed of the day, failed of the day, processed, failed
-- ARGV id, message, now in s, cut-off in s, most tasks in the archive, end of the day's counters in s,
--      largest counter, prefix of tasks    returns OK
if redis.call("LREM", KEYS[2], 0, ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("ZREM", KEYS[3], ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
redis.call("ZADD", KEYS[4], ARGV[3], ARGV[1])
local function remove(ids)
  for _, id in ipairs(ids) do
    redis.call("DEL", ARGV[8] .. id)
  end
  if #ids > 0 then
    redis.call("ZREM", KEYS[4], unpack(ids))
  end
end
remove(redis.call("ZRANGE", KEYS[4], "-inf", ARGV[4], "BYSCORE"))
remove(redis.call("ZRANGE", KEYS[4], 0, -ARGV[5]))
redis.call("HSET", KEYS[1], "msg", ARGV[2], "state", "archived")
if redis.call("INCR", KEYS[5]) == 1 then
  redis.call("EXPIREAT", KEYS[5], ARGV[6])
end
if redis.call("GET", KEYS[7]) == ARGV[7] then
  redis.call("SET", KEYS[7], 1)
else
  redis.call("INCR", KEYS[7])
end
if redis.call("INCR", KEYS[6]) == 1 then
  redis.call("EXPIREAT", KEYS[6], ARGV[6])
end
if redis.call("GET", KEYS[8]) == ARGV[7] then
  redis.call("SET", KEYS[8], 1)
else
  redis.call("INCR", KEYS[8])
end
return redis.status_reply("OK")
