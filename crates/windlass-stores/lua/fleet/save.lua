-- save: write or remove a document, if its version is still the expected one. KEYS[1] the stem of the fleet.
-- ARGV[2] class, ARGV[3] key, ARGV[4] the version that was seen or -1, ARGV[5] 1 to write, 0 to remove,
--   ARGV[6] the text
-- A document is `<version (6)><written (6)><text>`.
-- returns {1, version or 0}, or {0, the version that is there or 0}
local fleet, class, key = KEYS[1], ARGV[2], ARGV[3]
local documents, names = fleet .. 'doc:' .. class, fleet .. 'names:' .. class
local known = call('HGET', documents, key)
local version = known and take('>I6', known, 1) or -1
if version ~= tonumber(ARGV[4]) then return { 0, math.max(version, 0) } end
version = math.max(version, 0)
if ARGV[5] == '0' then
  call('HDEL', documents, key)
  call('ZREM', names, key)
  return { 1, 0 }
end
call('HSET', documents, key, pack('>I6I6', version + 1, now) .. ARGV[6])
call('ZADD', names, 0, key)
return { 1, version + 1 }
