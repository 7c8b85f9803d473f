-- apply: record runs that succeeded, each only while its lease is valid, and claim the next tasks.
-- ARGV[2] where the claim's arguments begin, or 0; ARGV[3] count of groups; ARGV[4] 1 if the entry of a
--   lease is enough to know that it is valid, else 0; then for each group, whose
--   runs are of one queue and kept alike, with results that are all large or none: number of the queue in
--   KEYS, retention in ms, 1 when results are large, count, and of all runs the task ids, then the
--   entries, then the tails, then the large results, then if ARGV[4] is 0 the times of their claims. No task
--   is named twice.
-- returns {time, claim's reply or 0, for each group 1 all are recorded |
--   {1 recorded | 0 no such task | its record, ...} | {'damaged', why} nothing is recorded}
local OLD_MS = 30000
local claim_at, is_certain, at, reply = tonumber(ARGV[2]), ARGV[4] == '1', 5, { now, 0 }
local updated = pack('>I6', now)

-- Counts runs that succeeded and has their records kept; does neither when a key of the queue is damaged.
local function count_and_keep(queue, retention, until_ms, ids)
  call('HINCRBY', queue .. 'st', 'c', #ids)
  local is_kept, trouble = pcall(keep, queue, retention, until_ms, table.concat(ids))
  if not is_kept then
    call('HINCRBY', queue .. 'st', 'c', -#ids)
    error(trouble, 0)
  end
end

-- Takes recorded runs out of their lane.
local function acknowledge(queue, lane, acknowledged)
  call('XACK', queue .. 's:' .. lane, 'w', unpack(acknowledged))
  -- Trimming costs more than an acknowledgement, so a small batch trims only sometimes.
  if #acknowledged >= 32 or micros % 32 < #acknowledged then
    -- One entry that is held for long would keep all behind it: take these out one by one.
    if cut(queue, lane) > OLD_MS then
      call('XDEL', queue .. 's:' .. lane, unpack(acknowledged))
    end
  end
end

-- Records `count` runs of a queue, whose arguments begin at `first`. A damaged key that a record needs fails all of
-- them before the first record is written. What follows the records is undone by nobody, so a damaged key fails none.
local function record(queue, retention, is_large, first, count)
  local entries_at, tails_at = first + count - 1, first + 2 * count - 1
  local results_at = first + 3 * count - 1
  local claims_at = results_at + (is_large and count or 0)
  local until_ms = now + tonumber(retention)
  if until_ms > LATEST then until_ms = LATEST end
  local front = (is_large and '*' or '+') .. updated .. pack('>I6', until_ms)
  local records = call('HMGET', queue .. 'd', unpack(ARGV, first, first + count - 1))
  local answers, rewritten, ids, held, accepted = {}, {}, {}, {}, 0
  local freed_later, was_cancelled = {}, {}
  for i = 1, count do
    local record, entry = records[i], ARGV[entries_at + i]
    if not record then
      answers[i] = 0
    elseif stands_under(record, entry) and #record > #entry + HEAD
      and (is_certain
        or is_held_since(queue, sub(record, #entry + 3, #entry + 3), entry, tonumber(ARGV[claims_at + i]))) then
      local id, head = ARGV[first + i - 1], #entry + 2
      local lane, is_cancelled, marks = byte(record, head + 1, head + 3)
      accepted = accepted + 1
      answers[i] = 1
      ids[accepted] = id
      rewritten[2 * accepted - 1] = id
      rewritten[2 * accepted] = front .. record .. ARGV[tails_at + i]
      local of_lane = held[lane]
      if not of_lane then of_lane = {}; held[lane] = of_lane end
      of_lane[#of_lane + 1] = entry
      if marks % 4 >= ALONE then freed_later[#freed_later + 1] = i end
      if is_cancelled == 49 then was_cancelled[#was_cancelled + 1] = id end
      if is_large then call('HSET', queue .. 'b', id .. 'r', ARGV[results_at + i]) end
    else
      answers[i] = record
    end
  end

  if accepted > 0 then
    count_and_keep(queue, retention, until_ms, ids)
    call('HSET', queue .. 'd', unpack(rewritten))
    for n = 1, #freed_later do
      local i = freed_later[n]
      guarded(free_marked, queue, ARGV[first + i - 1], records[i], #ARGV[entries_at + i] + 2, ALONE)
    end
    if #was_cancelled > 0 then redis.pcall('HDEL', queue .. 'cr', unpack(was_cancelled)) end
    for lane, acknowledged in pairs(held) do guarded(acknowledge, queue, string.char(lane), acknowledged) end
    if call('EXISTS', queue .. 'watch') == 1 then
      for n = 1, accepted do call('PUBLISH', queue .. 'ends', ids[n]) end
    end
  end
  return accepted == count and 1 or answers
end

for g = 1, tonumber(ARGV[3]) do
  local queue, retention, count = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 3])
  local is_large = ARGV[at + 2] == '1'
  reply[2 + g] = guarded(record, queue, retention, is_large, at + 4, count)
  at = at + 4 + count * (3 + (is_large and 1 or 0) + (is_certain and 0 or 1))
end
if claim_at > 0 then reply[2] = claim(claim_at) end
return reply
