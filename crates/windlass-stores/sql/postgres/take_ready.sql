-- take_ready: takes pending tasks out of their place, many at once.
-- in: $1 seqs        out: seq, position, since
WITH
range AS MATERIALIZED (
  SELECT DISTINCT r.lo
  FROM unnest($1::int8[]) AS u (seq)
  CROSS JOIN LATERAL (SELECT x.lo, x.hi FROM ready AS x WHERE x.lo <= u.seq ORDER BY x.lo DESC LIMIT 1) AS r
  WHERE r.hi >= u.seq
),
hit AS MATERIALIZED (
  SELECT r.*
  FROM (SELECT lo FROM range ORDER BY lo) AS g
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.* FROM ready AS x WHERE x.lo = g.lo FOR UPDATE) AS r
),
chosen AS MATERIALIZED (SELECT range_agg(int8range(u.seq, u.seq, '[]')) AS all FROM unnest($1::int8[]) AS u (seq)),
gone AS (
  DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT tid FROM hit))
  RETURNING position, lo, hi, since, queue, lane, bits
),
-- From what is gone, and not from what was found: a rest may begin where its range began.
rest AS (
  INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
  SELECT g.position, lower(r), upper(r) - 1, g.since, g.queue, g.lane, g.bits
  FROM gone AS g
  CROSS JOIN LATERAL unnest(int8multirange(int8range(g.lo, g.hi, '[]')) - (SELECT c.all FROM chosen AS c)) AS r
)
SELECT u.seq, h.position, h.since
FROM hit AS h
JOIN unnest($1::int8[]) AS u (seq) ON u.seq BETWEEN h.lo AND h.hi
