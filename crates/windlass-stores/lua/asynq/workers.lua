-- workers: how many tasks workers hold in a queue. ARGV from 2: workers. returns the count of each
local reply = {}
for i = 2, #ARGV do
  local held = redis.pcall('SCARD', 'wl:' .. KEYS[1] .. 'w:' .. ARGV[i])
  reply[i - 1] = type(held) == 'number' and held or 0
end
return reply
