-- damage: shared by the scripts that compare the types of keys with the types that windlass and asynq use.
-- Each script returns `damaged`: {key, type that it has, type that it should have, ...}
local damaged = {}
local function add_damage(key, found, wanted)
  local count = #damaged
  damaged[count + 1], damaged[count + 2], damaged[count + 3] = key, found, wanted
end

local function compare(wanted, key)
  local trouble, found = mistyped(wanted, key)
  if trouble then add_damage(key, found, wanted) end
  return found
end

-- Compares keys with a table of {type, names after the stem ...}.
local function compare_all(stem, types)
  for i = 1, #types do
    for n = 2, #types[i] do compare(types[i][1], stem .. types[i][n]) end
  end
end

-- Compares the key of the leader's term, whose text must also be a number.
local function compare_term(stem)
  local key = stem .. 'term'
  if compare('string', key) == 'string' and not term_in(call('GET', key)) then
    add_damage(key, 'string without a number', 'number')
  end
end
