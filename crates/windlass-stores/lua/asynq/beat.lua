-- beat: renew what a worker holds, take its progress, and tell it which of its runs are to stop.
-- ARGV[2] worker, ARGV[3] until when its leases last at least, in Unix seconds; then for each queue: where to
--   go on or empty, count, and for each report of progress id, number of its claim, the progress as JSON
-- returns for each queue {where to go on or '', 1 when the queue is paused, id and number of the claim of each run that
--   is to stop ...}, or {'damaged', why}
local LEASE_MIN_S, SLACK_S, AT_ONCE = 30, 9, 200
local worker, at, reply = ARGV[2], 4, {}
local target = math.max(second + LEASE_MIN_S, tonumber(ARGV[3]))

-- Renews what the worker holds in one queue; its arguments begin at `at`.
local function renew(queue, at, reports)
  local held = 'wl:' .. queue .. 'w:' .. worker
  local scanned = call('SSCAN', held, ARGV[at] == '' and '0' or ARGV[at], 'COUNT', AT_ONCE)
  call('ZCARD', queue .. 'lease')
  local ids, renewed = scanned[2], {}
  local answer = { scanned[1] == '0' and '' or scanned[1], call('EXISTS', queue .. 'paused') }
  if #ids > 0 then
    local scores = {}
    for from = 1, #ids, 1000 do
      local some = call('ZMSCORE', queue .. 'lease', unpack(ids, from, math.min(from + 999, #ids)))
      for i = 1, #some do scores[from + i - 1] = some[i] end
    end
    for i = 1, #ids do
      local id, key = ids[i], queue .. 't:' .. ids[i]
      local state, claim_number, lease, cancel, holder =
        unpack(fields_of(key, 'state', 'wl_f', 'wl_l', 'wl_x', 'wl_w'))
      if state ~= 'active' or not is_own_lease(scores[i], lease) or worker_of(holder) ~= worker then
        call('SREM', held, id)
      else
        -- Leases outlast a beat by far: not every beat has to write them.
        if tonumber(lease) < target - SLACK_S then
          call('HSET', key, 'wl_l', number(target))
          renewed[#renewed + 1], renewed[#renewed + 2] = number(target), id
        end
        if cancel then answer[#answer + 1], answer[#answer + 2] = id, claim_number end
      end
    end
    for from = 1, #renewed, 1000 do
      call('ZADD', queue .. 'lease', 'XX', unpack(renewed, from, math.min(from + 999, #renewed)))
    end
  end
  for report = at + 2, at + 1 + reports * 3, 3 do
    local id, key = ARGV[report], queue .. 't:' .. ARGV[report]
    local state, claim_number, lease = unpack(fields_of(key, 'state', 'wl_f', 'wl_l'))
    if state == 'active' and claim_number == ARGV[report + 1]
      and is_own_lease(call('ZSCORE', queue .. 'lease', id), lease) then
      call('HSET', key, 'wl_p', ARGV[report + 2])
    end
  end
  return answer
end

for k = 1, #KEYS do
  local reports = tonumber(ARGV[at + 1])
  reply[k] = guarded(renew, KEYS[k], at, reports)
  at = at + 2 + reports * 3
end
return reply
