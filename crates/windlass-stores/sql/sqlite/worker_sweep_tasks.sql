-- tend: which workers tasks name, a piece at a time.
-- in: ?1 first number, ?2 limit        out: number, worker
SELECT number, worker
FROM windlass_task
WHERE number >= ?1
ORDER BY number
LIMIT ?2
