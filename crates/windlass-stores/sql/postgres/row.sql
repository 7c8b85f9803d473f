-- row: what decisions about tasks need, wherever they stand.
-- in: $1 seqs        out: task, fate, keys
SELECT t.seq, t.stamp, t.queue, q.name, t.priority, k.name, t.max_crashes, t.retention_ms,
  f.attempts, f.crashes, f.token, f.applied, f.worker, w.id, f.claimed_at, f.started_at, f.updated_at, f.run_at,
  f.retention_ms, f.cancel, f.history, y.idempotency_key, y.unique_digest, y.unique_for_ms, y.seq IS NOT NULL
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (SELECT x.* FROM task AS x WHERE x.seq = u.seq) AS t
LEFT JOIN LATERAL (SELECT x.* FROM fate AS x WHERE x.seq = t.seq LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT x.* FROM keyed AS x WHERE x.seq = t.seq LIMIT 1) AS y ON true
LEFT JOIN queue AS q ON q.id = t.queue
LEFT JOIN kind AS k ON k.id = t.kind
LEFT JOIN worker AS w ON w.number = f.worker
