-- run_all: all of a sorted set go to the end of the line.
-- KEYS sorted set, pending    ARGV prefix of tasks    returns how many
local ids = redis.call("ZRANGE", KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  redis.call("LPUSH", KEYS[2], id)
  redis.call("HSET", ARGV[1] .. id, "state", "pending")
end
redis.call("DEL", KEYS[1])
return #ids
