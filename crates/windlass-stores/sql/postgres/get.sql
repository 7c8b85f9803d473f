-- get: tasks whose retention is not over.
-- in: $1 seqs, $2 the time in a test, or NULL, $3 with payload, $4 with result, $5 with history
SELECT r.seq, r.stamp, r.state, r.queue, r.priority, r.kind, r.attempts, r.crashes, r.max_retries, r.max_crashes,
  r.timeout_ms, r.retention_ms, r.created_at, r.updated_at, r.run_at, r.claimed_at, r.started_at, r.finished_at,
  r.token, r.is_cancel_requested, r.idempotency_key, r.extras, r.progress, r.worker,
  CASE WHEN $3::bool THEN r.payload END,
  CASE WHEN $4::bool THEN (SELECT x.output FROM result AS x WHERE x.seq = r.seq) END,
  CASE WHEN $5::bool THEN r.history END
FROM (SELECT clock($2::int8) AS now OFFSET 0) AS c
CROSS JOIN unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (SELECT z.* FROM record AS z WHERE z.seq = u.seq LIMIT 1) AS r
WHERE r.state IS NOT NULL AND (r.expires_at IS NULL OR r.expires_at > c.now)
