-- apply: record runs that succeeded, each only while its lease is valid, and claim the next tasks.
-- ARGV[2] where the claim's arguments begin, or 0; ARGV[3] 1 if the entry of a lease is enough to know that
-- it is valid, else 0; then for each queue: count, and for each run
--   task id, entry, `<retention in ms (6)><claimed at (6)><tail>`, the result where the tail says that it
--   is large (its first byte is 1)
-- returns {time, claim's reply or 0, for each queue {1 recorded | 0 no such task | its record}}
local OLD_MS = 30000
local claim_at, is_certain, at, reply = tonumber(ARGV[2]), ARGV[3] == '1', 4, { now, 0 }
local queues = claim_at > 0 and tonumber(ARGV[claim_at - 1]) or #KEYS
for k = 1, queues do
  local queue, count = KEYS[k], tonumber(ARGV[at])
  local ids, entries, tails, results, answers = {}, {}, {}, {}, {}
  at = at + 1
  for i = 1, count do
    ids[i], entries[i], tails[i] = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if byte(tails[i], 13) == 1 then results[i] = ARGV[at]; at = at + 1 end
  end

  local records, accepted, seen = call('HMGET', queue .. 'd', unpack(ids)), {}, {}
  for i = 1, count do
    local record, own = records[i], entries[i] .. ' p'
    if not record then
      answers[i] = 0
    elseif sub(record, 1, #own) == own and not seen[ids[i]] and #record >= #own - 1 + HEAD
      and (is_certain
        or is_held_since(queue, sub(record, #own + 1, #own + 1), entries[i], take('>I6', tails[i], 7))) then
      seen[ids[i]] = true
      accepted[#accepted + 1] = i
      answers[i] = 1
    else
      answers[i] = record
    end
  end

  if #accepted > 0 then
    local rewritten, held, kept = {}, {}, {}
    local stamp = pack('>I6', now)
    for n = 1, #accepted do
      local i = accepted[n]
      local id, entry, record, tail = ids[i], entries[i], records[i], tails[i]
      local head = #entry + 2
      local lane, marks = sub(record, head + 1, head + 1), byte(record, head + 3)
      local retention = take('>I6', tail, 1)
      local until_ms = now + retention
      if until_ms > LATEST then until_ms = LATEST end
      if has(marks, ALONE) then free_marked(queue, id, record, head, ALONE) end
      if results[i] then
        call('HSET', queue .. 'b', id .. 'r', results[i])
        marks = marks + LARGE_OUT
      end
      if sub(record, head + 2, head + 2) == '1' then call('HDEL', queue .. 'cr', id) end
      rewritten[2 * n - 1] = id
      rewritten[2 * n] = '- c' .. lane .. '0' .. string.char(marks) .. sub(record, head + 4, head + 11) .. stamp
        .. pack('>I6', until_ms) .. sub(record, head + 24) .. sub(tail, 14)
      local of_lane = held[lane]
      if not of_lane then of_lane = {}; held[lane] = of_lane end
      of_lane[#of_lane + 1] = entry
      local alike = kept[retention]
      if not alike then alike = { until_ms, {} }; kept[retention] = alike end
      alike[2][#alike[2] + 1] = id
    end
    call('HSET', queue .. 'd', unpack(rewritten))
    call('HINCRBY', queue .. 'st', 'c', #accepted)
    for retention, alike in pairs(kept) do
      keep(queue, string.format('%.0f', retention), alike[1], alike[2])
    end
    for lane, acknowledged in pairs(held) do
      call('XACK', queue .. 's:' .. lane, 'w', unpack(acknowledged))
      -- Small flushes cut now and then: it costs more than an acknowledgement.
      if #acknowledged >= 32 or micros % 32 < #acknowledged then
        -- One entry that is held for long would keep all behind it: take these out one by one.
        if cut(queue, lane) > OLD_MS then
          call('XDEL', queue .. 's:' .. lane, unpack(acknowledged))
        end
      end
    end
    if call('EXISTS', queue .. 'watch') == 1 then
      for n = 1, #accepted do call('PUBLISH', queue .. 'ends', ids[accepted[n]]) end
    end
  end
  reply[2 + k] = answers
end
if claim_at > 0 then reply[2] = claim(claim_at) end
return reply
