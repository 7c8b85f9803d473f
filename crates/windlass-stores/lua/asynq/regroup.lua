-- regroup: name groups again that have tasks and are not named. ARGV from 2: names of groups that have a set.
-- returns how many were missing
local queue, missing = KEYS[1], 0
for i = 2, #ARGV do
  local set = queue .. 'g:' .. ARGV[i]
  -- What is being aggregated lies in a set of its own, which is no group.
  if not call('ZSCORE', queue .. 'aggregation_sets', set) and call('EXISTS', set) == 1 then
    missing = missing + call('SADD', queue .. 'groups', ARGV[i])
  end
end
return missing
