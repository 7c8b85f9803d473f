-- claim: lease the first pending tasks of one lane (queue, priority, suspects or not) to a worker.
-- in: ?1 epoch, ?2 worker number, ?3 now, ?4 queue, ?5 priority, ?6 suspects 0 or 1, ?7 limit
-- A damaged count must not overflow: the statement would fail for all tasks of the lane.
-- out: the claimed rows, in no particular order (the caller sorts them by position)
UPDATE windlass_task
SET state = 2,
    epoch = ?1,
    worker = ?2,
    claimed_at = ?3,
    updated_at = ?3,
    attempts = min(attempts, 4294967294) + 1,
    started_at = NULL,
    progress = NULL
WHERE number IN (
  SELECT number
  FROM windlass_task
  WHERE state = 1
    AND queue = ?4
    AND priority = ?5
    AND (crashes >= 2) = ?6
  ORDER BY position
  LIMIT ?7
)
RETURNING position, number, id, kind, attempts, crashes, max_retries, max_crashes,
  timeout_ms, retention_ms, cancel_requested, created_at, large, extras, payload, pending_at
