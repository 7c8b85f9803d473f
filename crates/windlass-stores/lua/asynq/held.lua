-- held: what a worker holds in a queue.
-- ARGV[2] worker; ARGV[3] where to go on, or empty; ARGV[4] at most, about; ARGV[5] `lost` to refuse it
--   everything from now on, else empty; ARGV[6] the leader's term, or empty
-- returns {time, where to go on or '', tasks as they stand ...}, or 0: the term is stale
local queue, worker = KEYS[1], ARGV[2]
local own = 'wl:' .. queue
if ARGV[6] ~= '' and not is_current(own, ARGV[6]) then return 0 end
if ARGV[5] == 'lost' then call('ZADD', own .. 'lost', 'NX', now, worker) end
local held = own .. 'w:' .. worker
local scanned = call('SSCAN', held, ARGV[3] == '' and '0' or ARGV[3], 'COUNT', ARGV[4])
local reply = { now, scanned[1] == '0' and '' or scanned[1] }
for i = 1, #scanned[2] do
  local id = scanned[2][i]
  local row = look(queue, id, false)
  -- Someone else may have taken it: a Go worker, after its lease was over for long.
  if row and row[4] == 'active' and is_own_lease(row[2], row[11]) and worker_of(row[12]) == worker then
    reply[#reply + 1] = row
  else
    call('SREM', held, id)
  end
end
return reply
