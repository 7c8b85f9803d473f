-- held: what a worker holds in a queue.
-- ARGV[2] worker; ARGV[3] after which entry of which lane to go on, as `<lane> <entry>`, or empty;
-- ARGV[4] at most; ARGV[5] `lost` to refuse it everything from now on, and to forget it here when it
--   holds nothing, else empty; ARGV[6] the leader's term, or empty
-- returns {time, where to go on or '', {id, record, progress, worker, claimed at} ...}, or 0: the term is stale
local queue, worker, left = KEYS[1], ARGV[2], tonumber(ARGV[4])
if ARGV[6] ~= '' and not is_current(queue, ARGV[6]) then return 0 end
if ARGV[5] == 'lost' then call('ZADD', queue .. 'lost', 'NX', now, worker) end
local lane, after = string.match(ARGV[3], '^(%d) (.*)$')
local first = tonumber(lane or '0')
local reply = { now, '' }
for number = first, 7 do
  local stream = queue .. 's:' .. number
  if left > 0 and call('EXISTS', stream) == 1 then
    local from = '-'
    if number == first and after then from = '(' .. after end
    local held = held_in(queue, number, from, '+', left, worker)
    for i = 1, #held do
      local entry = held[i][1]
      local found = call('XRANGE', stream, entry, entry)[1]
      local id = found and found[2][2]
      local record = id and call('HGET', queue .. 'd', id)
      if record and sub(record, 1, #entry + 2) == entry .. ' p' then
        local claim = call('XREVRANGE', queue .. 'c:' .. number, entry, '-', 'COUNT', 1)[1]
        reply[#reply + 1] = { id, record, '', worker, claim and claim[2][2] or '0' }
      else
        call('XACK', stream, 'w', entry)
        -- Its task cannot be told: the sweep finds it by its record.
        if not found then tear(queue) end
      end
      reply[2] = number .. ' ' .. entry
    end
    left = left - #held
    if #held == 0 and from == '-' and ARGV[5] == 'lost' then
      call('XGROUP', 'DELCONSUMER', stream, 'w', worker)
    end
  end
end
if left > 0 then reply[2] = '' end
return reply
