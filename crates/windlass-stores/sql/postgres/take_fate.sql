-- take_fate: locks dead and cancelled tasks, many at once. They leave their place when their row is written or removed,
-- which the caller does in the same transaction.
-- in: $1 seqs, sorted, $2 allowed states, a bit each, $3 retention must last beyond this        out: seq, state
SELECT u.seq, f.state
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (
  SELECT x.state
  FROM fate AS x
  WHERE x.seq = u.seq AND $2::int4 & (1 << x.state) <> 0 AND (x.expires_at IS NULL OR x.expires_at > $3::int8)
  FOR UPDATE
) AS f
