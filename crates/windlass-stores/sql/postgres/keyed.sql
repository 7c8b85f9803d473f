-- keyed: the keys of tasks.
-- in: $1 seqs        out: seq, kind, idempotency_key
SELECT y.seq, k.name, y.idempotency_key
FROM keyed AS y
JOIN task AS t ON t.seq = y.seq
JOIN kind AS k ON k.id = t.kind
WHERE y.seq = ANY ($1::int8[]) AND y.idempotency_key IS NOT NULL
