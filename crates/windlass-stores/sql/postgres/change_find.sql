-- change_find: the tasks that match among those whose numbers lie in a stretch, by the places where they stand; the newest
-- first. Unlike `list` it does not look for each task in every place, and pending ones it reads range by range.
-- in: $1 first number, $2 last number, $3 retention must last beyond this, $4 queue, $5 kind, $6 priority,
--     $7 created from, $8 created before, $9 finished before, $10 limit, $11 states, a bit each, $12 with extras
-- out: seq, stamp, state, extras
SELECT t.seq, t.stamp, t.state, CASE WHEN $12::bool THEN t.extras END
FROM (
  SELECT x.seq, x.stamp, x.queue, x.kind, x.priority, x.created_at, x.extras, 1::int2 AS state, NULL::int8 AS finished_at
  FROM ready AS r
  CROSS JOIN LATERAL (
    SELECT z.* FROM task AS z WHERE z.seq BETWEEN greatest(r.lo, $1::int8) AND least(r.hi, $2::int8)
  ) AS x
  WHERE $11::int4 & 2 <> 0
    AND r.lo >= coalesce((SELECT z.lo FROM ready AS z WHERE z.lo <= $1 ORDER BY z.lo DESC LIMIT 1), $1)
    AND r.lo <= $2 AND r.hi >= $1
  UNION ALL
  SELECT x.seq, x.stamp, x.queue, x.kind, x.priority, x.created_at, x.extras, p.state, p.finished_at
  FROM (
    SELECT s.seq, 2::int2 AS state, NULL::int8 AS finished_at
    FROM lease AS l
    CROSS JOIN LATERAL unnest(l.ranges * int8multirange(int8range($1, $2, '[]'))) AS r
    CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s (seq)
    WHERE $11 & 4 <> 0 AND l.ranges && int8range($1, $2, '[]')
    UNION ALL
    SELECT d.seq, CASE WHEN d.is_retry THEN 3 ELSE 0 END::int2, NULL
    FROM deferred AS d
    WHERE d.seq BETWEEN $1 AND $2 AND $11 & (CASE WHEN d.is_retry THEN 8 ELSE 1 END) <> 0
    UNION ALL
    SELECT f.seq, f.state, f.finished_at
    FROM fate AS f
    WHERE f.seq BETWEEN $1 AND $2 AND $11 & (1 << f.state) <> 0 AND (f.expires_at IS NULL OR f.expires_at > $3::int8)
    UNION ALL
    SELECT d.block * 1024 + u.o, 4::int2, d.finished_at
    FROM done AS d
    CROSS JOIN LATERAL unnest(d.offsets) AS u (o)
    WHERE $11 & 16 <> 0 AND d.block BETWEEN $1 >> 10 AND $2 >> 10 AND d.expires_at > $3
      AND d.block * 1024 + u.o BETWEEN $1 AND $2
  ) AS p
  CROSS JOIN LATERAL (SELECT z.* FROM task AS z WHERE z.seq = p.seq LIMIT 1) AS x
) AS t
WHERE ($4::text IS NULL OR t.queue = (SELECT x.id FROM queue AS x WHERE x.name = $4))
  AND ($5::text IS NULL OR t.kind = (SELECT x.id FROM kind AS x WHERE x.name = $5))
  AND ($6::int2 IS NULL OR t.priority = $6)
  AND ($7::int8 IS NULL OR t.created_at >= $7)
  AND ($8::int8 IS NULL OR t.created_at < $8)
  AND ($9::int8 IS NULL OR t.finished_at < $9)
ORDER BY t.seq DESC
LIMIT $10::int8
