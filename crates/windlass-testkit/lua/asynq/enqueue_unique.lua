-- enqueue_unique: the same under a lock. The lock stays when the id is in use: so does asynq's.
-- KEYS lock, task, pending    ARGV id, lock in s, message, now in ns
-- returns 1 taken, 0 the id is in use, -1 the lock is
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "EX", ARGV[2]) then
  return -1
end
if redis.call("EXISTS", KEYS[2]) == 1 then
  return 0
end
redis.call("HSET", KEYS[2], "msg", ARGV[3], "state", "pending",
  "pending_since", ARGV[4], "unique_key", KEYS[1])
redis.call("LPUSH", KEYS[3], ARGV[1])
return 1
