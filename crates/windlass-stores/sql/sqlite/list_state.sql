-- list: tasks of one rare state, newest first.
-- in: ?1 only numbers below, ?2 now, ?3 queue, ?4 kind, ?5 priority, ?6 created from, ?7 created before,
--   ?8 finished before, ?9 tag, ?10 limit, ?11 state
-- out: the columns of `TaskRecord` but for the large ones
SELECT t.number, t.id, t.state, t.queue, t.priority, t.kind, t.attempts, t.crashes,
  t.max_retries, t.max_crashes, t.timeout_ms, t.retention_ms, t.created_at, t.updated_at, t.run_at,
  t.claimed_at, t.started_at, t.finished_at, t.epoch, t.cancel_requested, t.idempotency_key, t.large,
  t.extras, t.progress, w.id
FROM windlass_task AS t INDEXED BY windlass_task_rare
LEFT JOIN windlass_worker AS w ON w.number = t.worker
WHERE (t.state = 0 OR t.state = 3 OR t.state = 5 OR t.state = 6)
  AND t.state = ?11
  AND t.number < ?1
  AND (t.expires_at IS NULL OR t.expires_at > ?2)
  AND (?3 IS NULL OR t.queue = ?3)
  AND (?4 IS NULL OR t.kind = ?4)
  AND (?5 IS NULL OR t.priority = ?5)
  AND (?6 IS NULL OR t.created_at >= ?6)
  AND (?7 IS NULL OR t.created_at < ?7)
  AND (?8 IS NULL OR t.finished_at < ?8)
  AND (?9 IS NULL OR EXISTS (
    SELECT 1 FROM json_each(iif(json_valid(t.extras), t.extras, '{}'), '$.tags') AS tag WHERE tag.value = ?9
  ))
ORDER BY t.number DESC
LIMIT ?10
