-- out: when the next task is due
SELECT min(run_at)
FROM task
WHERE state IN (0, 3)
