-- remove_queue: a queue and its tasks. Completed tasks, groups, pause and counters are passed over.
-- KEYS pending, active, scheduled, retry, archived, lease    ARGV prefix of tasks, 1 to force
-- returns 1 done, -1 there are tasks, -2 there are running tasks
local ids = {}
for at = 1, 2 do
  for _, id in ipairs(redis.call("LRANGE", KEYS[at], 0, -1)) do
    table.insert(ids, id)
  end
end
for at = 3, 5 do
  for _, id in ipairs(redis.call("ZRANGE", KEYS[at], 0, -1)) do
    table.insert(ids, id)
  end
end
if redis.call("LLEN", KEYS[2]) > 0 then
  return -2
end
if ARGV[2] ~= "1" and #ids > 0 then
  return -1
end
for _, id in ipairs(ids) do
  redis.call("DEL", ARGV[1] .. id)
end
for at = 1, 6 do
  redis.call("DEL", KEYS[at])
end
return 1
