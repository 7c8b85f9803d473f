-- load: read documents of a class, by key. KEYS[1] the stem of the fleet.
-- ARGV[2] class; ARGV[3] one, ARGV[4] its key; or ARGV[3] after, ARGV[4] a key or empty, ARGV[5] at most
-- returns {key, document, ...}
local fleet, class = KEYS[1], ARGV[2]
local documents, names = fleet .. 'doc:' .. class, { ARGV[4] }
if ARGV[3] == 'after' then
  local from = ARGV[4] == '' and '-' or '(' .. ARGV[4]
  names = call('ZRANGEBYLEX', fleet .. 'names:' .. class, from, '+', 'LIMIT', 0, ARGV[5])
end
local reply = {}
for i = 1, #names do
  local document = call('HGET', documents, names[i])
  if document then
    reply[#reply + 1] = names[i]
    reply[#reply + 1] = document
  end
end
return reply
