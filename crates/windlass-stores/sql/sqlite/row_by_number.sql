-- what decisions about one task need.
-- in: ?1 number        out: the columns of `Row`
SELECT number, id, state, queue, priority, kind, position, pending_at, attempts, crashes,
  max_crashes, retention_ms, run_at, claimed_at, started_at, finished_at, epoch, applied_epoch, worker,
  cancel_requested, idempotency_key, unique_digest, unique_for_ms, large, history, expires_at
FROM windlass_task
WHERE number = ?1
