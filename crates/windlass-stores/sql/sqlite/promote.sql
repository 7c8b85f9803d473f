-- promote: tasks whose time has come, the longest due first.
-- in: ?1 now, ?2 limit        out: number
SELECT number
FROM task
WHERE state IN (0, 3)
  AND run_at <= ?1
ORDER BY run_at, number
LIMIT ?2
