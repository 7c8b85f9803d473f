-- prelude: what the scripts of both layouts and of the fleet share; put in front of each when it is loaded.
-- ARGV[1] is the time in ms that a test has set, or empty: then the server's own counts.
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local pack, take = struct.pack, struct.unpack
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = tonumber(ARGV[1]) or math.floor(micros / 1000)
local LATEST = 253402128000000

-- Refuses a leader of an older term; true when it may go on. `own` is the stem of a queue's own keys.
local function is_current(own, term)
  local highest = call('GET', own .. 'term')
  if highest and tonumber(highest) > tonumber(term) then
    return false
  end
  if highest ~= term then
    call('SET', own .. 'term', term)
  end
  return true
end
