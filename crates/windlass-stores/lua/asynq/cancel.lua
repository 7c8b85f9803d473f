-- cancel: take a cancellation that was asked for over asynq's channel, if windlass runs the task.
-- ARGV[2] id. returns the worker that runs it, of the first queue in which it runs so, or ''
for k = 1, #KEYS do
  local queue, key = KEYS[k], KEYS[k] .. 't:' .. ARGV[2]
  local state, lease, holder = unpack(fields_of(key, 'state', 'wl_l', 'wl_w'))
  if state == 'active' and is_own_lease(score_of(queue, ARGV[2], state), lease) then
    call('HSET', key, 'wl_x', '1')
    return worker_of(holder) or ''
  end
end
return ''
