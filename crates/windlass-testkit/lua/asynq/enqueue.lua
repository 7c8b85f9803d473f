-- enqueue: a new task at the end of the line.
-- KEYS task, pending    ARGV message, id, now in ns    returns 1 taken, 0 the id is in use
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
redis.call("HSET", KEYS[1], "msg", ARGV[1], "state", "pending", "pending_since", ARGV[3])
redis.call("LPUSH", KEYS[2], ARGV[2])
return 1
