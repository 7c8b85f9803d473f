-- aggregation_check: moves a group that is ready into a set of its own. A group that is empty then
-- leaves `groups`.
-- KEYS group, set, aggregation_sets, groups
-- ARGV most tasks of a set, longest delay in s, grace in s, end of the set in s, now in s, name
-- returns 1 when a set was made
local size = redis.call("ZCARD", KEYS[1])
if size == 0 then
  return 0
end
local most, delay, grace, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local oldest = tonumber(redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")[2])
local newest = tonumber(redis.call("ZRANGE", KEYS[1], -1, -1, "WITHSCORES")[2])
local is_full = most ~= 0 and size >= most
local is_late = delay ~= 0 and oldest <= now - delay
if not (is_full or is_late or newest <= now - grace) then
  return 0
end
local last = most == 0 and -1 or most - 1
local moved = redis.call("ZRANGE", KEYS[1], 0, last, "WITHSCORES")
for at = 1, #moved, 2 do
  redis.call("ZADD", KEYS[2], moved[at + 1], moved[at])
end
redis.call("ZREMRANGEBYRANK", KEYS[1], 0, last)
redis.call("ZADD", KEYS[3], ARGV[4], KEYS[2])
if redis.call("ZCARD", KEYS[1]) == 0 then
  redis.call("SREM", KEYS[4], ARGV[6])
end
return 1
