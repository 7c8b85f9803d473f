-- delete_all_pending: the whole line; locks stay until their time is over: asynq's own defect.
-- KEYS pending    ARGV prefix of tasks    returns how many
local ids = redis.call("LRANGE", KEYS[1], 0, -1)
for _, id in ipairs(ids) do
  redis.call("DEL", ARGV[1] .. id)
end
redis.call("DEL", KEYS[1])
return #ids
