-- add_to_group_unique: the same under a lock, of which the hash says nothing.
-- KEYS task, group, groups, lock    ARGV message, id, now in s, name of the group, lock in s
-- returns 1 taken, 0 the id is in use, -1 the lock is
if not redis.call("SET", KEYS[4], ARGV[2], "NX", "EX", ARGV[5]) then
  return -1
end
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "aggregating", "group", ARGV[4])
redis.call("ZADD", KEYS[2], ARGV[3], ARGV[2])
redis.call("SADD", KEYS[3], ARGV[4])
return 1
