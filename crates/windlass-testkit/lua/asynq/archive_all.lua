-- archive_all: all of a list, a sorted set or a group into the archive.
-- KEYS list or sorted set, archived, groups
-- ARGV now in s, cut-off in s, most tasks in the archive, prefix of tasks, name of the group or nothing
-- returns how many
local is_list = redis.call("TYPE", KEYS[1]).ok == "list"
local ids = redis.call(is_list and "LRANGE" or "ZRANGE", KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  redis.call("ZADD", KEYS[2], ARGV[1], id)
  redis.call("HSET", ARGV[4] .. id, "state", "archived")
end
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", ARGV[2])
redis.call("ZREMRANGEBYRANK", KEYS[2], 0, -ARGV[3])
redis.call("DEL", KEYS[1])
if ARGV[5] ~= "" then
  redis.call("SREM", KEYS[3], ARGV[5])
end
return #ids
