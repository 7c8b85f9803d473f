-- delete_expired_completed: completed tasks whose retention is over.
-- KEYS completed    ARGV now in s, prefix of tasks, how many at most    returns how many
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1], "LIMIT", 0, ARGV[3])
for _, id in ipairs(ids) do
  redis.call("DEL", ARGV[2] .. id)
  redis.call("ZREM", KEYS[1], id)
end
return #ids
