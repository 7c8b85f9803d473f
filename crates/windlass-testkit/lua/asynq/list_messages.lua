-- list_messages: a page of a list, as it lies there.
-- KEYS list    ARGV from, to, prefix of tasks    returns (message, result)*
local page = {}
for _, id in ipairs(redis.call("LRANGE", KEYS[1], ARGV[1], ARGV[2])) do
  table.insert(page, redis.call("HMGET", ARGV[3] .. id, "msg", "result"))
end
return page
