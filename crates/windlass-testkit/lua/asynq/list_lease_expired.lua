-- list_lease_expired: what a recoverer deals with. An id without a message is passed over.
-- KEYS lease    ARGV cut-off in s, prefix of tasks    returns messages
local messages = {}
for _, id in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])) do
  local message = redis.call("HGET", ARGV[2] .. id, "msg")
  if message then
    table.insert(messages, message)
  end
end
return messages
