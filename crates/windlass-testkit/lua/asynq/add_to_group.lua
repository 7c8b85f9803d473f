-- add_to_group: a new task that waits for others of its group.
-- KEYS task, group, groups    ARGV message, id, now in s, name of the group
-- returns 1 taken, 0 the id is in use
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "aggregating", "group", ARGV[4])
redis.call("ZADD", KEYS[2], ARGV[3], ARGV[2])
redis.call("SADD", KEYS[3], ARGV[4])
return 1
