-- get: one task, unless its retention is over.
-- in: ?1 id, ?2 now, ?3–?5 whether payload, result and history are wanted
-- out: the columns of `TaskRecord`, the large ones last
SELECT t.number, t.id, t.state, t.queue, t.priority, t.kind, t.attempts, t.crashes,
  t.max_retries, t.max_crashes, t.timeout_ms, t.retention_ms, t.created_at, t.updated_at, t.run_at,
  t.claimed_at, t.started_at, t.finished_at, t.epoch, t.cancel_requested, t.idempotency_key, t.large,
  t.extras, t.progress, w.id,
  iif(?3, t.payload, NULL), iif(?4, t.result, NULL), iif(?5, t.history, NULL)
FROM windlass_task AS t
LEFT JOIN windlass_worker AS w ON w.number = t.worker
WHERE t.id = ?1
  AND (t.expires_at IS NULL OR t.expires_at > ?2)
