-- write_server_state: what a server tells of itself and of its runs.
-- KEYS server, workers    ARGV how long in s, server, (task id, worker)*    returns OK
redis.call("SETEX", KEYS[1], ARGV[1], ARGV[2])
redis.call("DEL", KEYS[2])
for at = 3, #ARGV - 1, 2 do
  redis.call("HSET", KEYS[2], ARGV[at], ARGV[at + 1])
end
redis.call("EXPIRE", KEYS[2], ARGV[1])
return redis.status_reply("OK")
