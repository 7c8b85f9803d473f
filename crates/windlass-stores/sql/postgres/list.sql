-- list: a stretch of the tasks that match, the newest first.
-- in: $1 below this number, $2 now, $3 queue, $4 kind, $5 priority, $6 created from, $7 created before,
--     $8 finished before, $9 limit, $10 from this number on, $11 states, a bit each
SELECT r.seq, r.stamp, r.state, r.queue, r.priority, r.kind, r.attempts, r.crashes, r.max_retries, r.max_crashes,
  r.timeout_ms, r.retention_ms, r.created_at, r.updated_at, r.run_at, r.claimed_at, r.started_at, r.finished_at,
  r.token, r.is_cancel_requested, r.idempotency_key, r.extras, r.progress, r.worker
FROM (
  SELECT t.seq
  FROM task AS t
  WHERE t.seq < $1::int8 AND t.seq >= $10::int8
    AND ($3::text IS NULL OR t.queue = (SELECT x.id FROM queue AS x WHERE x.name = $3))
    AND ($4::text IS NULL OR t.kind = (SELECT x.id FROM kind AS x WHERE x.name = $4))
    AND ($5::int2 IS NULL OR t.priority = $5)
    AND ($6::int8 IS NULL OR t.created_at >= $6)
    AND ($7::int8 IS NULL OR t.created_at < $7)
  ORDER BY t.seq DESC
) AS u
CROSS JOIN LATERAL (SELECT z.* FROM record AS z WHERE z.seq = u.seq LIMIT 1) AS r
WHERE $11::int4 & (1 << r.state) <> 0
  AND (r.expires_at IS NULL OR r.expires_at > $2::int8)
  AND ($8::int8 IS NULL OR r.finished_at < $8)
ORDER BY u.seq DESC
LIMIT $9::int8
