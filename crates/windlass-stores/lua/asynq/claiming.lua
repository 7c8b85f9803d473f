-- claiming: leases pending tasks to a worker; shared by claim and apply.
local SUSPECT_CRASHES, LOOKED_AT_MAX, LEASE_MIN_S = 2, 1000, 30

-- Takes up to `most` tasks of a queue; appends id, message, own record, crashes, cancel and pending since of
-- each to `found`. Suspects beyond `suspects` go to the end of the line.
local function take_from(queue, worker, most, suspects, lease, found)
  local own, got, taken, looked, put_off, bytes = 'wl:' .. queue, {}, {}, 0, {}, 0
  if call('LLEN', queue .. 'pending') == 0 then return 0, suspects end
  -- What is popped must have a place to go to.
  call('LLEN', queue .. 'active')
  call('ZCARD', queue .. 'lease')
  call('SCARD', own .. 'w:' .. worker)
  local given = number(math.max(tonumber(call('GET', own .. 'n') or '0') + 1, micros))
  local claimed, by = number(now) .. ' ', ' ' .. worker
  while #got < most and looked < LOOKED_AT_MAX and bytes < ANSWER_BYTES_MAX do
    local ids = call('RPOP', queue .. 'pending', most - #got)
    if not ids then break end
    looked = looked + #ids
    for i = 1, #ids do
      local id = ids[i]
      local key = queue .. 't:' .. id
      local message, record, crashes, cancel, since, state =
        unpack(fields_of(key, 'msg', 'wl', 'wl_k', 'wl_x', 'pending_since', 'state'))
      crashes = tonumber(crashes or '0') or 0
      local is_suspect = crashes >= SUSPECT_CRASHES
      if bytes >= ANSWER_BYTES_MAX then
        -- The rest for the next call, in its order.
        for rest = #ids, i, -1 do call('RPUSH', queue .. 'pending', ids[rest]) end
        break
      elseif not message then
        -- An id without a task: drop what a Go worker may have left of it.
        drop_hash(key)
        redis.pcall('HINCRBY', own .. 'mend', 'ghosts', 1)
      elseif taken[id] or (state == 'active' and call('ZSCORE', queue .. 'lease', id)) then
        -- It runs already: the same id stood in the line twice.
        redis.pcall('HINCRBY', own .. 'mend', 'twins', 1)
      elseif is_suspect and suspects == 0 then
        put_off[#put_off + 1] = id
      else
        if is_suspect then suspects = suspects - 1 end
        bytes = bytes + #message
        got[#got + 1], taken[id] = id, true
        local n = #found
        found[n + 1], found[n + 2], found[n + 3] = id, message, record or ''
        found[n + 4], found[n + 5], found[n + 6] = crashes, cancel and 1 or 0, since or '-'
        call('HSET', key, 'state', 'active', 'wl_f', given, 'wl_l', lease, 'wl_w', claimed .. (since or '-') .. by)
        call('HDEL', key, 'pending_since', 'wl_p', 'wl_d', 'wl_s')
      end
    end
  end
  if #put_off > 0 then call('LPUSH', queue .. 'pending', unpack(put_off)) end
  if #got > 0 then
    local leases = {}
    for i = 1, #got do leases[2 * i - 1], leases[2 * i] = lease, got[i] end
    call('SET', own .. 'n', given)
    call('LPUSH', queue .. 'active', unpack(got))
    call('ZADD', queue .. 'lease', unpack(leases))
    call('SADD', own .. 'w:' .. worker, unpack(got))
    found[2] = given
    -- There is more than this worker wanted: let another hear of it.
    local is_full = #got == most or bytes >= ANSWER_BYTES_MAX
    if is_full and call('LLEN', queue .. 'pending') > 0 then ring(queue) end
  end
  return #got, suspects
end

-- ARGV from `at`: worker, until when its lease is known to last or `fleet` when the last of KEYS is the
-- stem of the fleet, limit, suspects at most, count of quotas, and for each the number of its queue in KEYS
-- and at most.
-- returns {status, found...}: 1 served, 2 the lease is over, 3 the worker is gone; `found` has for each
-- quota that gave something {its number, number of the claim, id, message, own record, crashes, cancel,
-- pending since, ...}, and for each whose queue is damaged {its number, -1, why}
local function claim(at)
  local worker, lease_until = ARGV[at], tonumber(ARGV[at + 1])
  if not lease_until then
    local known = call('ZSCORE', KEYS[#KEYS] .. 'leases', worker)
    if not known then return { 3 } end
    lease_until = tonumber(known)
  end
  if lease_until <= now then return { 2 } end
  local left, suspects, reply, damaged = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), { 1 }, {}
  -- Go takes what has not been renewed for 30 s after its end: never less than its own leases.
  local lease = math.max(second + LEASE_MIN_S, second_of(lease_until))
  local first, total = at + 5, tonumber(ARGV[at + 4])
  for i = 1, total do
    local queue = KEYS[tonumber(ARGV[first + (i - 1) * 2])]
    local lost = guarded(call, 'ZSCORE', 'wl:' .. queue .. 'lost', worker)
    if type(lost) == 'table' then
      reply[#reply + 1], damaged[queue] = { i, -1, lost[2] }, true
    elseif lost then
      return { 3 }
    end
  end
  for i = 1, total do
    local from = first + (i - 1) * 2
    local queue, share, found = KEYS[tonumber(ARGV[from])], tonumber(ARGV[from + 1]), { i, '0' }
    if share > left then share = left end
    if share > 0 and not damaged[queue] and call('EXISTS', queue .. 'paused') == 0 then
      local got, suspects_left = guarded(take_from, queue, worker, share, suspects, lease, found)
      if type(got) == 'table' then
        reply[#reply + 1] = { i, -1, got[2] }
      else
        left, suspects = left - got, suspects_left
        if got > 0 then reply[#reply + 1] = found end
      end
    end
  end
  return reply
end
