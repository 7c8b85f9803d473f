-- stray: look at keys that a walk through all keys has met, and put right those that nothing leads to.
-- ARGV from 2: what follows the stem of the queue in their names. returns {what was mended, count, ...}
local queue, mended = KEYS[1], {}
local own = 'wl:' .. queue
local function mend(what)
  mended[what] = (mended[what] or 0) + 1
end

-- A group that has tasks and is not named, and ids in it without a task. What is being aggregated lies in a set
-- of its own, which is no group.
local MEMBERS_MAX = 200
local function look_at_group(name)
  local set = queue .. 'g:' .. name
  if call('ZSCORE', queue .. 'aggregation_sets', set) then return end
  for _, id in ipairs(call('ZRANDMEMBER', set, MEMBERS_MAX)) do
    if call('HEXISTS', queue .. 't:' .. id, 'msg') == 0 then
      call('ZREM', set, id)
      mend('ghosts')
    end
  end
  if call('EXISTS', set) == 0 then
    call('SREM', queue .. 'groups', name)
  elseif call('SADD', queue .. 'groups', name) == 1 then
    mend('groups')
  end
end

-- A task that says that it runs, and that is neither active nor leased: a Go worker's report that found no
-- lease leaves it so. Whether its run came to an end is not known; it runs again, since nothing may be lost.
local function look_at_task(id)
  local key = queue .. 't:' .. id
  if call('HEXISTS', key, 'msg') == 0 then
    if not call('ZSCORE', queue .. 'lease', id) and call('DEL', key) == 1 then mend('ghosts') end
  elseif call('HGET', key, 'state') == 'active' and not call('ZSCORE', queue .. 'lease', id)
    and not call('LPOS', queue .. 'active', id) then
    call('LLEN', queue .. 'pending')
    call('HSET', key, 'state', 'pending', 'pending_since', now_ns)
    call('HDEL', key, 'wl_l')
    call('RPUSH', queue .. 'pending', id)
    ring(queue)
    mend('strays')
  end
end

-- A lock of Go's whose holder is gone, or knows nothing of it since its submit was refused. A task that holds
-- a lock has its name in its message. Those of windlass are looked at by `mend`.
local function look_at_lock(lock)
  local holder = call('HEXISTS', own .. 'u', lock) == 0 and call('GET', lock)
  local message = holder and call('HGET', queue .. 't:' .. holder, 'msg')
  if holder and not (message and string.find(message, lock, 1, true)) then
    call('DEL', lock)
    mend('locks')
  end
end

-- A damaged key is none of what is looked for here.
for i = 2, #ARGV do
  local part = ARGV[i]
  if sub(part, 1, 2) == 'g:' then
    guarded(look_at_group, sub(part, 3))
  elseif sub(part, 1, 2) == 't:' then
    guarded(look_at_task, sub(part, 3))
  elseif sub(part, 1, 7) == 'unique:' then
    guarded(look_at_lock, queue .. part)
  end
end
local reply = {}
for what, count in pairs(mended) do
  reply[#reply + 1] = what
  reply[#reply + 1] = count
end
return reply
