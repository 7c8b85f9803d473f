-- get_task_info: one task, whatever its state.
-- KEYS task    ARGV id, now in s, prefix of the queue    returns message, state, due in s, result
if redis.call("EXISTS", KEYS[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
local found = redis.call("HMGET", KEYS[1], "msg", "state", "result")
local message, state, result = found[1], found[2], found[3]
if state == "scheduled" or state == "retry" then
  return {message, state, redis.call("ZSCORE", ARGV[3] .. state, ARGV[1]), result}
end
if state == "pending" then
  return {message, state, ARGV[2], result}
end
return {message, state, "0", result}
