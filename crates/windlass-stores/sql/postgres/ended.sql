-- ended: tasks that are finished or gone.
-- in: $1 seqs        out: those that are neither
SELECT r.seq, r.stamp
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (SELECT z.* FROM record AS z WHERE z.seq = u.seq LIMIT 1) AS r
WHERE r.state < 4
