-- keyed: the idempotency keys of tasks.
-- in: $1 seqs        out: seq, kind, idempotency_key
SELECT y.seq, k.name, y.idempotency_key
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (
  SELECT x.seq, x.idempotency_key FROM keyed AS x WHERE x.seq = u.seq AND x.idempotency_key IS NOT NULL LIMIT 1
) AS y
CROSS JOIN LATERAL (SELECT x.kind FROM task AS x WHERE x.seq = u.seq LIMIT 1) AS t
JOIN kind AS k ON k.id = t.kind
