-- watch: have ends told for some time, and what is waited for kept for a moment if it would be forgotten at once.
-- ARGV[2] for how long in ms; then ids
-- returns 1
local ms = tonumber(ARGV[2])
for k = 1, #KEYS do
  local queue = KEYS[k]
  call('SET', 'wl:' .. queue .. 'watch', '1', 'PX', ARGV[2])
  for i = 3, #ARGV do
    local key = queue .. 't:' .. ARGV[i]
    local state, message, awaited = unpack(fields_of(key, 'state', 'msg', 'wl_a'))
    local is_open = state and message and state ~= 'archived' and state ~= 'completed'
    -- Whoever waits asks again and again.
    if is_open and ((tonumber(awaited or '0') or 0) < now + ms / 2) then call('HSET', key, 'wl_a', number(now + ms)) end
  end
end
return 1
