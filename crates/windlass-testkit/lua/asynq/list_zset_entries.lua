-- list_zset_entries: a page of a sorted set, by rank.
-- KEYS sorted set    ARGV from, to, prefix of tasks    returns (message, result, score)*
local page = {}
local found = redis.call("ZRANGE", KEYS[1], ARGV[1], ARGV[2], "WITHSCORES")
for at = 1, #found, 2 do
  local entry = redis.call("HMGET", ARGV[3] .. found[at], "msg", "result")
  table.insert(page, {entry[1], entry[2], found[at + 1]})
end
return page
