-- take: notes what became of references that a worker took before, and moves the next ones to its list of taken ones,
-- in the order of the lanes given, with what came to it by a move that it waited for. First of all comes, if it is asked
-- for, what is in its list since an answer was lost: not by one of several claims at once, whose references lie there too.
-- Where a rest is to come, nothing is taken of its queue behind it, and nothing at all if it may have all that is wanted.
-- KEYS[1] stem    ARGV[1] worker, [2] tasks at most, [3] suspects at most, [4] 1 to have what is there already or 0,
--   [5] how many references are settled; for each of these how (`claimed`, `gone`, `waits`, `paused`, `finished`) and the
--   reference; then for each quota: tasks at most, how many lanes of a queue, the lanes (`queue:lane`)
-- returns {1 if the worker's heartbeat is there or 0, 2 more if a quota of which nothing is to be taken has something, 4
--   more if nothing is to be taken behind this at all; the rests that kept something from being taken; then the number of
--   its quota and each reference...}; what the worker had already has the number 0
local worker, left, suspects = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local taken, moved, held = stem .. 'taken:' .. worker, stem .. 'moved:' .. worker, stem .. 'held:' .. worker

local at = 6
for _ = 1, tonumber(ARGV[5]) do
  local how, reference = ARGV[at], ARGV[at + 1]
  at = at + 2
  if how == 'finished' then
    call('LREM', held, 1, reference)
  else
    -- What was fetched for the worker may have been claimed without a take.
    local was_ours = call('LREM', taken, 1, reference) > 0 or call('LREM', moved, 1, reference) > 0
    if how == 'claimed' then
      -- Its rest may still be on its way.
      call('LPUSH', held, reference)
    elseif list_of(reference) then
      call('ZREM', stem .. 'rests', rest_of(reference))
      if was_ours and how == 'paused' then
        call('SADD', stem .. 'paused', queue_of(reference))
      end
      if was_ours and how ~= 'gone' then
        put(reference)
      end
    end
  end
end

local awaited = {}
local found = { call('EXISTS', stem .. 'beat:' .. worker), awaited }
for _, reference in ipairs(ARGV[4] == '1' and call('LRANGE', taken, 0, -1) or {}) do
  found[#found + 1] = 0
  found[#found + 1] = reference
  left = left - (size_of(reference) or 0)
end
-- What came by a move goes back to where it stood: something more urgent may have come since. But not for one who only
-- tells what became of others.
local came = at <= #ARGV and call('LRANGE', moved, 0, -1) or {}
for _, reference in ipairs(came) do
  put(reference)
end
if #came > 0 then
  call('DEL', moved)
end

local paused, is_barred, more, asked, number, has_more, is_over = {}, {}, {}, {}, 0, false, false
for _, queue in ipairs(at <= #ARGV and call('SMEMBERS', stem .. 'paused') or {}) do
  paused[queue] = true
end
local rests = at <= #ARGV and rests_to_come() or {}
while at <= #ARGV do
  local quota = is_over and 0 or math.min(left, tonumber(ARGV[at]))
  local lanes = tonumber(ARGV[at + 1])
  number = number + 1
  for i = at + 2, at + 1 + lanes do
    local queue, lane = string.match(ARGV[i], '^(%d+):(%d+)$')
    local list, is_suspect = stem .. 'l:' .. ARGV[i], lane % 2 == 1
    asked[list] = true
    local is_served = not paused[queue] and (not is_suspect or suspects > 0)
    while is_served and quota > 0 and (not is_suspect or suspects > 0) do
      local reference = move_next(list, taken)
      if not reference then
        break
      end
      -- What is beyond the quota goes back as a rest.
      local given = math.min(size_of(reference), quota)
      if given < size_of(reference) then
        await_rest(reference)
      end
      found[#found + 1] = number
      found[#found + 1] = reference
      quota, left = quota - given, left - given
      if is_suspect then
        suspects = suspects - 1
      end
    end
    local rest = is_served and rest_in(rests, ARGV[i])
    if rest and quota > 0 then
      awaited[#awaited + 1] = rest
      is_barred[queue], is_over, quota = true, quota == left, 0
    end
    if is_served and ARGV[at] == '0' and not has_more then
      has_more = rest ~= nil or call('EXISTS', list) == 1
    end
    -- A rest wakes someone when it comes.
    if is_served and (left <= 0 or is_over) and not is_barred[queue] and not is_suspect and call('EXISTS', list) == 1 then
      more[queue] = true
    end
  end
  at = at + 2 + lanes
end
if #found > 2 then
  -- A broker that has lost everything knows of the worker again only with its next heartbeat.
  call('SADD', stem .. 'workers', worker)
end
-- Others may have the rest, and what was not asked for.
for _, reference in ipairs(came) do
  if list_of(reference) and not asked[list_of(reference)] then
    ring(queue_of(reference))
  end
end
for queue in pairs(more) do
  ring(queue)
end
found[1] = found[1] + (has_more and 2 or 0) + (is_over and 4 or 0)
return found
