-- dequeue: the first of the line, leased. An id without a hash is moved all the same, and a hash with
-- nothing but a state is made: asynq's own defect.
-- KEYS pending, paused, active, lease    ARGV end of the lease in s, prefix of tasks
-- returns the message, or nil
if redis.call("EXISTS", KEYS[2]) == 1 then
  return nil
end
local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[3])
if not id then
  return nil
end
local task = ARGV[2] .. id
redis.call("HSET", task, "state", "active")
redis.call("HDEL", task, "pending_since")
redis.call("ZADD", KEYS[4], ARGV[1], id)
return redis.call("HGET", task, "msg")
