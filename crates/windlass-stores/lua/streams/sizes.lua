-- sizes: how long large payloads and results are. ARGV from 2: their fields
-- returns the bytes of each, 0 where there is none
local reply = {}
for i = 2, #ARGV do reply[i - 1] = call('HSTRLEN', KEYS[1] .. 'b', ARGV[i]) end
return reply
