-- promote: tasks whose time has come, the longest due first.
-- in: ?1 now, ?2 limit        out: number
SELECT number
FROM windlass_task INDEXED BY windlass_task_due
WHERE (state = 0 OR state = 3)
  AND run_at <= ?1
ORDER BY run_at, number
LIMIT ?2
