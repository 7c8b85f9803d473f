-- prelude: what the scripts of both layouts and of the fleet share; put in front of each when it is loaded.
-- ARGV[1] is the time in ms that a test has set, or empty: then the server's own counts.
local call, sub, byte, find = redis.call, string.sub, string.byte, string.find
local pack, take = struct.pack, struct.unpack
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = tonumber(ARGV[1]) or math.floor(micros / 1000)
local LATEST = 253402128000000

-- What is wrong with the type of a key, nothing when it has the wanted one or does not exist; and its type or `none`.
local function mistyped(wanted, key)
  local found = call('TYPE', key).ok
  if found == wanted or found == 'none' then return nil, found end
  return 'WRONGTYPE ' .. key .. ' is a ' .. found .. ' instead of a ' .. wanted, found
end

-- Runs a check that only reads; returns its result, or nothing and what is wrong with the queue.
local function try(check, ...)
  local is_done, result = pcall(check, ...)
  if is_done then return result end
  return nil, type(result) == 'table' and result.err or tostring(result)
end

-- True for what the server, or Lua, says of a key that has another type or content than those who use it write.
local DAMAGE = { 'WRONGTYPE', 'not an integer', 'not a valid float', 'attempt to' }
local function is_damage(text)
  for i = 1, #DAMAGE do
    if find(text, DAMAGE[i], 1, true) then return true end
  end
  return false
end

-- Raises an error again that was caught, so that its code is still read.
local function raise(text)
  -- Before 7.0 the code stands behind the place in the script.
  error(find(text, '^%u+ ') and { err = text } or text, 0)
end

-- Does the part of a call that concerns one queue. A damaged key fails only this part, and the answer is then
-- {'damaged', what was said}; any other error fails the call. A part reads all keys that it needs before it writes.
local function guarded(part, ...)
  local is_done, answer, more = pcall(part, ...)
  if is_done then return answer, more end
  local text = type(answer) == 'table' and answer.err or tostring(answer)
  if not is_damage(text) then raise(text) end
  return { 'damaged', text }
end

-- The number in a stored term; nothing when the text is not a term. A term is a time in ms, or the previous term + 1.
local function term_in(text)
  return text and #text <= 15 and find(text, '^%d+$') and tonumber(text) or nil
end

-- Refuses a leader of an older term; true when it may go on. `own` is the stem of a queue's own keys. An
-- unreadable term counts as a missing one, as in a new queue, and is overwritten: the fleet checks the term too, at the
-- begin of each pass.
local function is_current(own, term)
  local highest = call('GET', own .. 'term')
  local number = term_in(highest)
  if number and number > tonumber(term) then
    return false
  end
  if highest ~= term then
    call('SET', own .. 'term', term)
  end
  return true
end
