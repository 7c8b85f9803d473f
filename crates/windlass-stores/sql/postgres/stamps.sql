-- stamps: what makes ids of numbers.
-- in: $1 seqs        out: seq, stamp
SELECT t.seq, t.stamp
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (SELECT x.seq, x.stamp FROM task AS x WHERE x.seq = u.seq LIMIT 1) AS t
