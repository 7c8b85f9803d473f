-- insert: store tasks of one or more queues, with the keys that they ask for.
-- ARGV[2] the time in µs of an earlier call for the same tasks' neighbours, or empty: on a Cluster each
-- queue has a call of its own, and all of them count as one submit. Then for each queue: count, and for
-- each task
--   its id (16 bytes), `<lane><marks><place in the submit><when: n a t><ms (8)><extras><body>`, and if
--   the extras have 1: the payload; 2: the digest of its idempotency key; 4: the digest of its unique
--   key and the ms that it is held, -1 until the task is finished. Held for 0 ms it is not held at all.
-- returns {µs, for each queue and task: 1 stored, {2, record} its id is in use, {3, holder, its record}
--   the idempotency key is in use, {4, holder} the unique key is}
local call_at = tonumber(ARGV[2]) or micros
local reply, at = { string.format('%.0f', call_at) }, 3
for k = 1, #KEYS do
  local queue, count = KEYS[k], tonumber(ARGV[at])
  local ids, asked, extras, answers = {}, {}, {}, {}
  at = at + 1
  for i = 1, count do
    ids[i], asked[i] = ARGV[at], ARGV[at + 1]
    at = at + 2
    local more = byte(asked[i], 13)
    if more > 0 then
      local extra = {}
      if has(more, 1) then extra.payload = ARGV[at]; at = at + 1 end
      if has(more, 2) then extra.once = ARGV[at]; at = at + 1 end
      if has(more, 4) then extra.alone, extra.hold = ARGV[at], tonumber(ARGV[at + 1]); at = at + 2 end
      extras[i] = extra
    end
  end

  -- Check first. What was decided in this call counts as if it were there already.
  local known, promised, over = call('HMGET', queue .. 'd', unpack(ids)), {}, {}
  local fresh = 0
  for i = 1, count do
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

  -- Write after.
  for holder, record in pairs(over) do
    prune_one(queue, holder, record, head_of(record))
  end
  if fresh > 0 then
    local journal, submitted = {}, call_at
    for i = 1, count do
      if answers[i] == 1 then journal[#journal + 1] = sub(asked[i], 3, 3) .. ids[i] end
    end
    -- Others may have been faster, or the clock has gone back: the journal goes on from where it was.
    local text = table.concat(journal)
    if redis.pcall('XADD', queue .. 'j', string.format('%.0f-0', submitted), 'i', text).err then
      local last = call('XREVRANGE', queue .. 'j', '+', '-', 'COUNT', 1)[1]
      submitted = tonumber(string.match(last[1], '^%d+')) + 1
      call('XADD', queue .. 'j', string.format('%.0f-0', submitted), 'i', text)
    end
    local records, added, later = {}, {}, 0
    local stamp, place = pack('>I6', now), pack('>I7', submitted)
    for i = 1, count do
      if answers[i] == 1 then
        local id, ask, extra = ids[i], asked[i], extras[i]
        local lane, when = sub(ask, 1, 1), sub(ask, 4, 4)
        local due = 0
        if when ~= 'n' then
          due = take('>I8', ask, 5)
          if when == 'a' then due = now + due end
          if due > LATEST then due = LATEST end
          if due <= now then due = 0 end
        end
        local start, since = 's', 0
        local prefix = '- '
        if due > 0 then
          call('ZADD', queue .. 'z', due, id)
          later = later + 1
        else
          start, since = 'p', now
          prefix = enter(queue, lane, id) .. ' '
          added[lane] = (added[lane] or 0) + 1
        end
        records[#records + 1] = id
        records[#records + 1] = prefix .. start .. lane .. '0' .. sub(ask, 2, 2) .. '\0\0' .. stamp .. stamp
          .. pack('>I6', since) .. pack('>I6', due) .. place .. sub(ask, 3, 3) .. sub(ask, 14)
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
    for lane, more in pairs(added) do
      call('HINCRBY', queue .. 'st', 'p' .. lane, more)
      ring(queue, lane)
    end
  end
  reply[k + 1] = answers
end
return reply
