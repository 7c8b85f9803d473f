-- idling: since when a queue is idle; shared by tend and forget.

-- Since when a queue has no task, key, order or mark of a lost worker, as far as upkeep has seen; nothing when it has
-- one. Every submit adds to the journal: when that has not grown since the note was made, there was no task in between.
local function idle_since(queue)
  if call('HLEN', queue .. 'd') > 0 or call('HLEN', queue .. 'u') > 0 or call('ZCARD', queue .. 'lost') > 0
    or call('HEXISTS', queue .. 'st', 'paused') == 1 or call('HEXISTS', queue .. 'mend', 'ordered') == 1 then
    return nil
  end
  local last = '0-0'
  if call('EXISTS', queue .. 'j') == 1 then
    local about = call('XINFO', 'STREAM', queue .. 'j')
    for i = 1, #about, 2 do
      if about[i] == 'last-generated-id' then last = about[i + 1] end
    end
  end
  local since, seen = string.match(call('HGET', queue .. 'mend', 'idle') or '', '^(%d+) (.*)$')
  if seen == last then return tonumber(since) end
  call('HSET', queue .. 'mend', 'idle', string.format('%.0f ', now) .. last)
  return now
end
