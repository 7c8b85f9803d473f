-- list_info_keys: the keys of live servers or workers; forgets the others.
-- KEYS servers or workers    ARGV now in s    returns keys
local keys = redis.call("ZRANGEBYSCORE", KEYS[1], ARGV[1], "+inf")
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", ARGV[1] - 1)
return keys
