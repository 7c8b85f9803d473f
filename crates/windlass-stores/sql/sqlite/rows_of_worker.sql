-- the tasks that a worker holds.
-- in: ?1 worker number, ?2 limit        out: number, id, epoch, claimed_at, cancel_requested
SELECT number, id, epoch, claimed_at, cancel_requested
FROM windlass_task
WHERE state = 2
  AND worker = ?1
ORDER BY number
LIMIT ?2
