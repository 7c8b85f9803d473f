-- schedule: a new task for later.
-- KEYS task, scheduled    ARGV message, due in s, id    returns 1 taken, 0 the id is in use
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "scheduled")
redis.call("ZADD", KEYS[2], ARGV[2], ARGV[3])
return 1
