-- list_fate: dead or cancelled tasks that match, the newest first.
-- in: as of list; $10 state
SELECT r.seq, r.stamp, r.state, r.queue, r.priority, r.kind, r.attempts, r.crashes, r.max_retries, r.max_crashes,
  r.timeout_ms, r.retention_ms, r.created_at, r.updated_at, r.run_at, r.claimed_at, r.started_at, r.finished_at,
  r.token, r.is_cancel_requested, r.idempotency_key, r.extras, r.progress, r.worker
FROM (SELECT f.seq FROM fate AS f WHERE f.seq < $1::int8 AND f.state = $10::int2 ORDER BY f.seq DESC) AS u
CROSS JOIN LATERAL (SELECT z.* FROM record AS z WHERE z.seq = u.seq LIMIT 1) AS r
WHERE (r.expires_at IS NULL OR r.expires_at > $2::int8)
  AND ($3::text IS NULL OR r.queue = $3)
  AND ($4::text IS NULL OR r.kind = $4)
  AND ($5::int2 IS NULL OR r.priority = $5)
  AND ($6::int8 IS NULL OR r.created_at >= $6)
  AND ($7::int8 IS NULL OR r.created_at < $7)
  AND ($8::int8 IS NULL OR r.finished_at < $8)
ORDER BY u.seq DESC
LIMIT $9::int8
