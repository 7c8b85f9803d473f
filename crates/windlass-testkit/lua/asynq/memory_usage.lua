-- memory_usage: about how much a queue takes, from samples. As Asynqmon's asynq (0.24.1) has it, the
-- sum is not guarded: one id without a hash and the whole script fails.
-- KEYS active, pending, scheduled, retry, archived, completed, groups
-- ARGV prefix of tasks, tasks per sample, groups per sample, prefix of groups    returns bytes
local sum = 0
local function add(ids, size)
  local bytes = 0
  for _, id in ipairs(ids) do
    bytes = bytes + redis.call("MEMORY", "USAGE", ARGV[1] .. id)
  end
  if #ids > 0 then
    sum = sum + bytes * size / #ids
  end
end
local last = ARGV[2] - 1
for at = 1, 2 do
  add(redis.call("LRANGE", KEYS[at], 0, last), redis.call("LLEN", KEYS[at]))
end
for at = 3, 6 do
  add(redis.call("ZRANGE", KEYS[at], 0, last), redis.call("ZCARD", KEYS[at]))
end
for at = 1, 6 do
  sum = sum + (redis.call("MEMORY", "USAGE", KEYS[at]) or 0)
end
local groups = redis.call("SMEMBERS", KEYS[7])
for at = 1, math.min(#groups, tonumber(ARGV[3])) do
  local group = ARGV[4] .. groups[at]
  add(redis.call("ZRANGE", group, 0, last), redis.call("ZCARD", group))
  sum = sum + (redis.call("MEMORY", "USAGE", group) or 0)
end
return math.floor(sum)
