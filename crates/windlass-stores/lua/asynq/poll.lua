-- poll: which queues have work, for those that nobody rings for: producers in Go do not.
-- returns the numbers of these queues in KEYS
local reply = {}
for k = 1, #KEYS do
  local pending = redis.pcall('LLEN', KEYS[k] .. 'pending')
  -- A damaged line has no work.
  if type(pending) == 'number' and pending > 0 and call('EXISTS', KEYS[k] .. 'paused') == 0 then
    reply[#reply + 1] = k
  end
end
return reply
