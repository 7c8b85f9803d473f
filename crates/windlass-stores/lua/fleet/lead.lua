-- lead: seek, renew or resign the leadership of upkeep. KEYS[1] the stem of the fleet.
-- ARGV[2] seek, renew or resign; ARGV[3] the holder, or the term; ARGV[4] ms that it lasts
-- returns {1, term} to who leads, {0, leader or '', ms until a bid can succeed} to who does not
local lead, bid, who = KEYS[1] .. 'lead', ARGV[2], ARGV[3]
local holder, until_ms, term = unpack(call('HMGET', lead, 'holder', 'until', 'term'))
term = term or '0'
local is_led = holder and holder ~= '' and tonumber(until_ms) > now
local left_ms = is_led and tonumber(until_ms) - now or 0
local function go_on()
  local length = math.min(now + tonumber(ARGV[4]), LATEST)
  call('HSET', lead, 'until', string.format('%.0f', length))
  return { 1, term }
end
if bid == 'seek' then
  if is_led and holder ~= who then return { 0, holder, left_ms } end
  if not is_led then
    term = string.format('%.0f', math.max(now, tonumber(term) + 1))
    call('HSET', lead, 'holder', who, 'term', term)
  end
  return go_on()
end
if is_led and term == who then
  if bid == 'renew' then return go_on() end
  call('HSET', lead, 'holder', '')
  return { 0, '', 0 }
end
return { 0, is_led and holder or '', left_ms }
