-- out: when the next task is due
SELECT min(run_at)
FROM windlass_task INDEXED BY windlass_task_due
WHERE (state = 0 OR state = 3)
