-- delete_all: all of a sorted set, and their locks.
-- KEYS sorted set    ARGV prefix of tasks    returns how many
local ids = redis.call("ZRANGE", KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  local task = ARGV[1] .. id
  local lock = redis.call("HGET", task, "unique_key")
  if lock and lock ~= "" and redis.call("GET", lock) == id then
    redis.call("DEL", lock)
  end
  redis.call("DEL", task)
end
redis.call("DEL", KEYS[1])
return #ids
