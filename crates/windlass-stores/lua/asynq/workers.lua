-- workers: how many tasks workers hold in queues. ARGV from 2: workers. returns the count of each
local reply = {}
for i = 2, #ARGV do
  local count = 0
  for k = 1, #KEYS do
    local held = redis.pcall('SCARD', 'wl:' .. KEYS[k] .. 'w:' .. ARGV[i])
    if type(held) == 'number' then count = count + held end
  end
  reply[i - 1] = count
end
return reply
