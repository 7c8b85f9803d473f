-- out: when the next task is due
SELECT min(run_at)
FROM task INDEXED BY task_due
WHERE (state = 0 OR state = 3)
