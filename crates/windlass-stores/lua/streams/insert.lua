-- insert: store tasks of one or more queues, with the keys that they ask for.
-- ARGV[2] the time in µs of an earlier call for the same tasks' neighbours, or empty: on a Cluster each
-- queue has a call of its own, and all of them count as one submit. Then for each queue: count, the
-- line for its journal (for each task its place in the submit and its id, 1 and 16 bytes), and for each
-- task
--   `<lane><marks>` when it is to run at once and asks for nothing more, else
--   `<lane><marks><when: n a t><ms (8)><extras>`; its body; and if the extras have 1: the payload; 2: the
--   digest of its idempotency key; 4: the digest of its unique key and the ms that it is held, -1 until
--   the task is finished. Held for 0 ms it is not held at all.
-- Every queue is checked before the first write. A queue that cannot take its tasks, for example since one of its
-- keys has another type, fails alone.
-- returns {µs, the time in ms, for each queue 1 all are stored | what is wrong with it: nothing is stored | for each
--   task: 1 stored, {2, record} its id is in use, {3, holder, its record} the idempotency key is in use, {4, holder}
--   the unique key is}
local call_at = tonumber(ARGV[2]) or micros
local reply, at, plans = { string.format('%.0f', call_at), now }, 3, {}

-- What is wrong with the types of the keys that tasks of these sorts need, beside the records and the journal.
local function trouble_of(queue, sorts)
  local needs, trouble, found = { st = 'hash' }, nil, nil
  for head in pairs(sorts) do
    local stream = queue .. 's:' .. sub(head, 1, 1)
    trouble, found = mistyped('stream', stream)
    if trouble then return trouble end
    if found == 'stream' then made[stream] = true else needs.mend = 'hash' end
    if #head > 2 then
      local more = byte(head, 12)
      if sub(head, 3, 3) ~= 'n' then needs.z = 'zset' end
      if has(more, 1) then needs.b = 'hash' end
      if has(more, 2) or has(more, 4) then needs.u, needs.ut = 'hash', 'zset' end
      -- The holder of the key may have to be removed.
      if has(more, 2) then needs.b, needs.g, needs.mend = 'hash', 'hash', 'hash' end
    end
  end
  for name, wanted in pairs(needs) do
    trouble = mistyped(wanted, queue .. name)
    if trouble then return trouble end
  end
end

-- Check first: all queues.
for k = 1, #KEYS do
  local queue, count, journal = KEYS[k], tonumber(ARGV[at]), ARGV[at + 1]
  local ids, heads, bodies, extras, answers, sorts, last = {}, {}, {}, {}, {}, {}, nil
  at = at + 2
  for i = 1, count do
    local head = ARGV[at]
    ids[i] = sub(journal, 17 * i - 15, 17 * i)
    heads[i], bodies[i] = head, ARGV[at + 1]
    at = at + 2
    -- Most tasks of a call begin alike.
    if head ~= last then last, sorts[head] = head, true end
    local more = #head > 2 and byte(head, 12) or 0
    if more > 0 then
      local extra = {}
      if has(more, 1) then extra.payload = ARGV[at]; at = at + 1 end
      if has(more, 2) then extra.once = ARGV[at]; at = at + 1 end
      if has(more, 4) then extra.alone, extra.hold = ARGV[at], tonumber(ARGV[at + 1]); at = at + 2 end
      extras[i] = extra
    end
  end

  -- What was decided in this call counts as if it were there already.
  local known, promised, over = redis.pcall('HMGET', queue .. 'd', unpack(ids)), {}, {}
  local fresh, trouble = 0, known.err or trouble_of(queue, sorts)
  for i = 1, trouble and 0 or count do
    local extra, answer = extras[i], 1
    if known[i] then
      answer = { 2, known[i] }
    elseif extra then
      if extra.once then
        local holder = promised[extra.once]
        if holder then
          answer = { 3, holder, '' }
        else
          local held = call('HGET', queue .. 'u', extra.once)
          holder = held and sub(held, 1, 16)
          local record = holder and not over[holder] and call('HGET', queue .. 'd', holder)
          local head = record and head_of(record)
          if head and is_over(record, head) then
            over[holder] = record
          elseif record then
            answer = { 3, holder, record }
          end
        end
      end
      if answer == 1 and extra.alone then
        local holder = promised[extra.alone]
        if not holder then
          local held = call('HGET', queue .. 'u', extra.alone)
          if held then
            local until_ms = take('>I6', held, 17)
            if until_ms == 0 or until_ms > now then holder = sub(held, 1, 16) end
          end
        end
        if holder then answer = { 4, holder } end
      end
      if answer == 1 then
        if extra.once then promised[extra.once] = ids[i] end
        if extra.alone and extra.hold ~= 0 then promised[extra.alone] = ids[i] end
      end
    end
    if answer == 1 then fresh = fresh + 1 end
    answers[i] = answer
  end
  if trouble then
    reply[k + 2] = trouble
  else
    plans[k] = { queue, count, journal, ids, heads, bodies, extras, answers, over, fresh }
  end
end

-- Write after.
local function write(queue, count, journal, ids, heads, bodies, extras, answers, over, fresh)
  local call, sub = call, sub
  local submitted, line, trouble = call_at, journal, nil
  if fresh > 0 then
    if fresh < count then
      local places = {}
      for i = 1, count do
        if answers[i] == 1 then places[#places + 1] = sub(journal, 17 * i - 16, 17 * i) end
      end
      journal = table.concat(places)
    end
    -- Others may have been faster, or the clock has gone back: the journal goes on from where it was.
    trouble = redis.pcall('XADD', queue .. 'j', string.format('%.0f-0', submitted), 'i', journal).err
    if trouble and not find(trouble, 'WRONGTYPE', 1, true) then
      trouble = nil
      local last = call('XREVRANGE', queue .. 'j', '+', '-', 'COUNT', 1)[1]
      if last then submitted = tonumber(string.match(last[1], '^%d+')) + 1 end
      call('XADD', queue .. 'j', string.format('%.0f-0', submitted), 'i', journal)
    end
  end
  if trouble then return trouble end
  for holder, record in pairs(over) do
    prune_one(queue, holder, record, head_of(record))
  end
  if fresh > 0 then
    local records, written, added, later, fronts = {}, 0, {}, 0, {}
    local stamp, place = pack('>I6', now), pack('>I7', submitted)
    for i = 1, count do
      if answers[i] == 1 then
        local id, head, extra = ids[i], heads[i], extras[i]
        local lane, due = sub(head, 1, 1), 0
        if #head > 2 and sub(head, 3, 3) ~= 'n' then
          due = take('>I8', head, 4)
          if sub(head, 3, 3) == 'a' then due = now + due end
          if due > LATEST then due = LATEST end
          if due <= now then due = 0 end
        end
        -- Tasks of one call that begin alike share what stands between entry and body.
        local front = due == 0 and fronts[head]
        if not front then
          local state, since = 's', 0
          if due == 0 then state, since = 'p', now end
          front = ' ' .. state .. lane .. '0' .. sub(head, 2, 2) .. '\0\0' .. stamp .. stamp .. pack('>I6', since)
            .. pack('>I6', due) .. place
          if due == 0 then fronts[head] = front end
        end
        local entry = '-'
        if due > 0 then
          call('ZADD', queue .. 'z', due, id)
          later = later + 1
        else
          local ready = added[lane]
          if not ready then ready = { stream_of(queue, lane), 0 }; added[lane] = ready end
          entry = call('XADD', ready[1], '*', 'i', id)
          ready[2] = ready[2] + 1
        end
        written = written + 2
        records[written - 1] = id
        records[written] = entry .. front .. sub(line, 17 * i - 16, 17 * i - 16) .. bodies[i]
        if extra then
          if extra.payload then call('HSET', queue .. 'b', id .. 'p', extra.payload) end
          if extra.once then call('HSET', queue .. 'u', extra.once, id .. '\0\0\0\0\0\0') end
          if extra.alone and extra.hold ~= 0 then
            local until_ms = extra.hold > 0 and math.min(now + extra.hold, LATEST) or 0
            call('HSET', queue .. 'u', extra.alone, id .. pack('>I6', until_ms))
            if until_ms > 0 then
              call('ZADD', queue .. 'ut', until_ms, extra.alone)
            else
              call('ZREM', queue .. 'ut', extra.alone)
            end
          end
        end
      end
    end
    call('HSET', queue .. 'd', unpack(records))
    if later > 0 then call('HINCRBY', queue .. 'st', 's', later) end
    for lane, ready in pairs(added) do
      call('HINCRBY', queue .. 'st', 'p' .. lane, ready[2])
      ring(queue, lane)
    end
  end
  return fresh == count and 1 or answers
end

for k = 1, #KEYS do
  if plans[k] then reply[k + 2] = write(unpack(plans[k])) end
end
return reply
