-- applied: under which claims the end of tasks was reported last.
-- in: $1 seqs        out: of those that are there: seq, stamp, by the fate, by the completion
SELECT t.seq, t.stamp, f.applied, d.token
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (SELECT x.seq, x.stamp FROM record AS x WHERE x.seq = u.seq AND x.state IS NOT NULL LIMIT 1) AS t
LEFT JOIN LATERAL (SELECT x.applied FROM fate AS x WHERE x.seq = t.seq LIMIT 1) AS f ON true
LEFT JOIN LATERAL (
  SELECT x.token FROM done AS x WHERE x.block = t.seq >> 10 AND (t.seq & 1023)::int2 = ANY (x.offsets) LIMIT 1
) AS d ON true
