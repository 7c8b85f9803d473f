-- schedule_unique: the same under a lock, which stays when the id is in use.
-- KEYS lock, task, scheduled    ARGV id, lock in s, due in s, message
-- returns 1 taken, 0 the id is in use, -1 the lock is
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "EX", ARGV[2]) then
  return -1
end
if redis.call("EXISTS", KEYS[2]) == 1 then
  return 0
end
redis.call("HSET", KEYS[2], "msg", ARGV[4], "state", "scheduled", "unique_key", KEYS[1])
redis.call("ZADD", KEYS[3], ARGV[3], ARGV[1])
return 1
