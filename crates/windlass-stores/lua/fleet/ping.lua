-- ping: find out whether the server accepts this store's writes, without a write. KEYS[1] the stem of the fleet.
-- returns {time, the name of a key of a wrong type or ''}; the server's error when it refuses writes
local fleet = KEYS[1]
local TYPES = {
  { 'workers', 'hash' }, { 'leases', 'zset' }, { 'gone', 'zset' }, { 'unclean', 'set' }, { 'lead', 'hash' },
  { 'born', 'string' }, { 'queues', 'set' }, { 'touched', 'zset' },
}
-- The server treats it as a write that needs memory; an empty value leaves a key that is not there as it is.
call('SETRANGE', fleet .. 'probe', 0, '')
for i = 1, #TYPES do
  local found = call('TYPE', fleet .. TYPES[i][1]).ok
  if found ~= 'none' and found ~= TYPES[i][2] then return { now, fleet .. TYPES[i][1] } end
end
return { now, '' }
