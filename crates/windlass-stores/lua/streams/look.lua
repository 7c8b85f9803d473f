-- look: read tasks as they stand.
-- ARGV for each queue: count, ids
-- returns {time, for each queue and task: 0 none, {record, progress or ''}, or of a task that runs
--   {record, progress or '', worker, claimed at}}
local reply, at = { now }, 2
for k = 1, #KEYS do
  local queue, count, answers = KEYS[k], tonumber(ARGV[at]), {}
  at = at + 1
  if count > 0 then
    local ids = {}
    for i = 1, count do ids[i] = ARGV[at + i - 1] end
    at = at + count
    local records = call('HMGET', queue .. 'd', unpack(ids))
    local has_progress = call('EXISTS', queue .. 'g') == 1
    for i = 1, count do
      local record = records[i]
      if not record then
        answers[i] = 0
      else
        local answer = { record, has_progress and call('HGET', queue .. 'g', ids[i]) or '' }
        local head = head_of(record)
        if head and head > 3 and state_of(record, head) == 'p' then
          local entry, lane = sub(record, 1, head - 2), sub(record, head + 1, head + 1)
          local held = held_in(queue, lane, entry, entry, 1)[1]
          if held then
            local claim = call('XREVRANGE', queue .. 'c:' .. lane, entry, '-', 'COUNT', 1)[1]
            answer[3], answer[4] = held[2], claim and claim[2][2] or '0'
          end
        end
        answers[i] = answer
      end
    end
  end
  reply[1 + k] = answers
end
return reply
