-- change: note that the cancellation of a task that runs was asked for; its place stays as it is.
-- ARGV from 2, for each task: id, its score, own record and claim as they were seen, the new own record
-- returns {1 done | 0 no longer as it was, ...}
local queue, reply = KEYS[1], {}
for at = 2, #ARGV, 5 do
  local id, key = ARGV[at], queue .. 't:' .. ARGV[at]
  local state, record, claim_number = unpack(call('HMGET', key, 'state', 'wl', 'wl_f'))
  local is_same = state == 'active' and call('ZSCORE', queue .. 'lease', id) == ARGV[at + 1]
    and (record or '') == ARGV[at + 2] and (claim_number or '') == ARGV[at + 3]
  if is_same then call('HSET', key, 'wl', ARGV[at + 4], 'wl_x', '1') end
  reply[#reply + 1] = is_same and 1 or 0
end
return reply
