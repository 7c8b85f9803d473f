-- expire: running tasks of workers that are gone. (From the tasks, not from the workers: marks of
-- gone workers are kept for ever, running tasks are few.)
-- in: ?1 limit        out: number
SELECT t.number
FROM windlass_task AS t INDEXED BY windlass_task_running
WHERE t.state = 2
  AND EXISTS (SELECT 1 FROM windlass_worker AS w WHERE w.number = t.worker AND w.gone_at IS NOT NULL)
LIMIT ?1
