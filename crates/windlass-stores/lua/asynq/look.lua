-- look: read tasks as they stand, wherever they are.
-- ARGV[2] 1 to bring results; then ids
-- returns {time, how many ids were looked at, {number of the queue in KEYS, its id, score, result, fields...}
--   ...}: fewer than asked for when they are too large for one answer
local reply, bytes, at = { now, 0 }, 0, 3
while at <= #ARGV and bytes < ANSWER_BYTES_MAX do
  for k = 1, #KEYS do
    local row = look(KEYS[k], ARGV[at], ARGV[2] == '1')
    if row then
      bytes = bytes + bytes_of(row)
      table.insert(row, 1, k)
      reply[#reply + 1] = row
    end
  end
  at = at + 1
end
reply[2] = at - 3
return reply
