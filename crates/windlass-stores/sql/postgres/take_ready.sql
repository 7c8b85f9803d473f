-- take_ready: takes pending tasks out of their place, many at once. On demand only plain ones: those that have never been
-- anything else, and have no keys.
-- in: runs of numbers, in order: $1 first, $2 last; $3 only plain ones
-- out: what was taken, as runs: first, last, position, since
WITH
range AS MATERIALIZED (
  SELECT x.lo, bool_or(x.is_whole) AS is_whole
  FROM unnest($1::int8[], $2::int8[]) AS u (lo, hi)
  CROSS JOIN LATERAL (
    SELECT r.lo, u.lo <= r.lo AND r.hi <= u.hi AS is_whole
    FROM ready AS r
    WHERE r.lo >= coalesce((SELECT z.lo FROM ready AS z WHERE z.lo <= u.lo ORDER BY z.lo DESC LIMIT 1), u.lo)
      AND r.lo <= u.hi AND r.hi >= u.lo AND (NOT $3::bool OR r.bits = 0)
  ) AS x
  GROUP BY x.lo
),
hit AS MATERIALIZED (
  SELECT r.tid, g.is_whole
  FROM (SELECT lo, is_whole FROM range ORDER BY lo) AS g
  CROSS JOIN LATERAL (
    SELECT x.ctid AS tid
    FROM ready AS x
    WHERE x.lo = g.lo AND (NOT $3 OR NOT EXISTS (SELECT FROM keyed AS y WHERE y.seq BETWEEN x.lo AND x.hi))
    FOR UPDATE
  ) AS r
),
gone AS (
  DELETE FROM ready AS x
  USING hit AS h
  WHERE x.ctid = h.tid
  RETURNING x.position, x.lo, x.hi, x.since, x.queue, x.lane, x.bits, h.is_whole
),
-- From what is gone, and not from what was found: a rest may begin where its range began.
rest AS (
  INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
  SELECT g.position, lower(r), upper(r) - 1, g.since, g.queue, g.lane, g.bits
  FROM gone AS g
  CROSS JOIN LATERAL (
    SELECT range_agg(int8range(u.lo, u.hi, '[]')) AS chosen
    FROM unnest($1::int8[], $2::int8[]) AS u (lo, hi)
    WHERE u.lo <= g.hi AND u.hi >= g.lo
  ) AS c
  CROSS JOIN LATERAL unnest(int8multirange(int8range(g.lo, g.hi, '[]')) - c.chosen) AS r
  WHERE NOT g.is_whole
)
SELECT g.lo, g.hi, g.position, g.since FROM gone AS g WHERE g.is_whole
UNION ALL
SELECT greatest(g.lo, u.lo), least(g.hi, u.hi), g.position, g.since
FROM gone AS g
JOIN unnest($1::int8[], $2::int8[]) AS u (lo, hi) ON u.lo <= g.hi AND u.hi >= g.lo
WHERE NOT g.is_whole
