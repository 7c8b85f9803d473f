-- show: tell asynq's tools of a worker and of what it runs, in one step. KEYS[1] its server's key, KEYS[2] its
-- workers' key
-- ARGV[2] seconds that it counts, ARGV[3] the server, then for each task that it runs its id and what is told of it
call('SET', KEYS[1], ARGV[3], 'EX', ARGV[2])
call('DEL', KEYS[2])
if #ARGV > 3 then
  call('HSET', KEYS[2], unpack(ARGV, 4))
  call('EXPIRE', KEYS[2], ARGV[2])
end
return 1
