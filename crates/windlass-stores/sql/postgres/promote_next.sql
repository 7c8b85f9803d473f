-- promote_next: when the next task is due.
SELECT run_at FROM deferred ORDER BY run_at LIMIT 1
