-- workers: how many tasks workers hold in a queue. ARGV from 2: workers. returns the count of each
local reply = {}
for i = 2, #ARGV do reply[i - 1] = call('SCARD', 'wl:' .. KEYS[1] .. 'w:' .. ARGV[i]) end
return reply
