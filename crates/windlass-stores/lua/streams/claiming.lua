-- claiming: leases pending tasks to a worker; shared by claim and apply.
--
-- A claim writes nothing about a task. Who holds it is in the group's list of pending entries; since
-- when, and for whom, is one line for each claim in the lane's log of claims, under the first entry
-- that it took: what one claim takes of a lane lies together.

-- Takes up to `most` tasks of a lane and appends id and record of each to `found`. Stops when large payloads have
-- `bytes_left` bytes; the longest has `longest`. Where the queue has large values, entries are read in pieces that
-- cannot exceed that by more than one payload: what was read cannot be put back. Returns how many tasks, how many
-- entries it has read, the bytes of large payloads, and what is wrong with the lane, if anything is.
local function take_from(queue, lane, worker, most, bytes_left, longest, found)
  local stream, got, first, seen, count, bytes, trouble = queue .. 's:' .. lane, 0, nil, 0, #found, 0, nil
  local has_large = call('EXISTS', queue .. 'b') == 1
  while got < most and bytes < bytes_left do
    local piece = most - got
    if has_large then piece = math.min(piece, math.max(1, math.floor((bytes_left - bytes) / longest))) end
    local read = redis.pcall('XREADGROUP', 'GROUP', 'w', worker, 'COUNT', piece, 'STREAMS', stream, '>')
    if is_torn(read) then
      make_lane(queue, lane)
    elseif read and read.err then
      trouble = read.err
    end
    if not read or read.err then break end
    local entries, ids = read[1][2], {}
    for i = 1, #entries do ids[i] = entries[i][2][2] end
    first = first or entries[1][1]
    seen = seen + #entries
    local records = call('HMGET', queue .. 'd', unpack(ids))
    for i = 1, #entries do
      local entry, record = entries[i][1], records[i]
      if record and stands_under(record, entry) then
        count = count + 2
        found[count - 1], found[count] = ids[i], record
        got = got + 1
        if has_large and has(byte(record, #entry + 5), LARGE_IN) then
          bytes = bytes + call('HSTRLEN', queue .. 'b', ids[i] .. 'p')
        end
      else
        -- The task has gone on without this entry.
        call('XACK', stream, 'w', entry)
      end
    end
  end
  if first then
    -- A group that was made anew gives old entries again: their claims are told by the older log.
    redis.pcall('XADD', queue .. 'c:' .. lane, first, 't', now, 'w', worker)
    call('HINCRBY', queue .. 'st', 'p' .. lane, -seen)
  end
  return got, seen, bytes, trouble
end

-- What a claim has to know of a queue: how many wait in each of its lanes, whether it is paused, and whether the
-- worker gets nothing there any more. Raises an error for a queue that cannot be used: it must be known before
-- anything is taken.
local function look_at(queue, worker)
  local is_refused = call('ZSCORE', queue .. 'lost', worker)
  local counts = call('HMGET', queue .. 'st', 'p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6', 'p7', 'paused')
  local has_work = false
  for lane = 1, 8 do
    local count = tonumber(counts[lane] or '0')
    if not count then error({ err = 'ERR ' .. queue .. 'st has a counter that is no number' }) end
    counts[lane], has_work = count, has_work or count > 0
  end
  local trouble = has_work and mistyped('hash', queue .. 'd')
  if trouble then error({ err = trouble }) end
  counts.is_refused = is_refused
  return counts
end

-- ARGV from `at`: worker, until when its lease is known to last or `fleet` when the last of KEYS is the
-- stem of the fleet, limit, suspects at most, count of
-- quotas, and for each the number of its queue in KEYS, at most, its priorities (highest first); then at how many
-- bytes of large payloads to stop, and how long the longest payload may be.
-- returns {status, found...}: 1 served, 2 the lease is over, 3 the worker is gone, 4 + bytes served with so many
-- bytes of large payloads; `found` has for each quota that gave something {its number, id, record, ...}, and
-- {- its number, what is wrong} for one whose queue cannot be used
local function claim(at)
  local worker, lease_until = ARGV[at], tonumber(ARGV[at + 1])
  if not lease_until then
    local known = call('ZSCORE', KEYS[#KEYS] .. 'leases', worker)
    if not known then return { 3 } end
    lease_until = tonumber(known)
  end
  local left, suspects = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local reply, lanes = { 1 }, {}
  local after = at + 5 + tonumber(ARGV[at + 4]) * 3
  local bytes_left, longest, bytes = tonumber(ARGV[after]), tonumber(ARGV[after + 1]), 0
  if lease_until <= now then return { 2 } end
  local quotas = {}
  for i = 1, tonumber(ARGV[at + 4]) do
    local from = at + 5 + (i - 1) * 3
    local queue = KEYS[tonumber(ARGV[from])]
    quotas[i] = { tonumber(ARGV[from + 1]), ARGV[from + 2], queue }
    if lanes[queue] == nil then
      local counts, trouble = try(look_at, queue, worker)
      if counts and counts.is_refused then return { 3 } end
      if trouble then reply[#reply + 1] = { -i, trouble } end
      lanes[queue] = counts or false
    end
  end
  for i = 1, #quotas do
    local share, priorities, queue = unpack(quotas[i])
    local counts, found = lanes[queue], { i }
    if share > left then share = left end
    if counts and not counts[9] then
      for p = 1, #priorities do
        local priority = tonumber(sub(priorities, p, p))
        -- A suspect goes first: at most one or two a claim, and others cannot starve it.
        for lane = priority * 2 + 1, priority * 2, -1 do
          local most = share
          if lane % 2 == 1 and suspects < most then most = suspects end
          if most > 0 and counts[lane + 1] > 0 and bytes < bytes_left then
            local got, seen, large, trouble =
              take_from(queue, lane, worker, most, bytes_left - bytes, longest, found)
            bytes = bytes + large
            if trouble then reply[#reply + 1] = { -i, trouble } end
            counts[lane + 1] = counts[lane + 1] - seen
            share, left = share - got, left - got
            if lane % 2 == 1 then suspects = suspects - got end
            -- There is more than this worker wanted: let another hear of it.
            if (got == most or bytes >= bytes_left) and counts[lane + 1] > 0 then ring(queue, lane) end
          end
        end
      end
    end
    if #found > 1 then
      if call('EXISTS', queue .. 'back') == 1 then
        for n = 2, #found, 2 do redis.pcall('ZREM', queue .. 'back', found[n]) end
      end
      reply[#reply + 1] = found
    end
  end
  if bytes > 0 then reply[1] = 4 + bytes end
  return reply
end
