-- take_held: takes tasks out of the leases that hold them, in the order of tokens.
-- in: $1 tokens, sorted, $2 numbers as multiranges
-- out: of each task that was still held: epoch, worker's number, worker's id, claimed_at, seq, position, since
WITH
held AS MATERIALIZED (
  SELECT l.token, l.epoch, l.worker, l.claimed_at, l.los, l.positions, l.sinces, l.ranges, g.fin
  FROM unnest($1::int8[], $2::text[]::int8multirange[]) AS g (token, fin)
  CROSS JOIN LATERAL (SELECT x.* FROM lease AS x WHERE x.token = g.token FOR UPDATE) AS l
),
gone AS (DELETE FROM lease AS x WHERE x.token = ANY (ARRAY(SELECT token FROM held WHERE ranges <@ fin))),
cut AS (
  UPDATE lease AS x SET ranges = x.ranges - (SELECT h.fin FROM held AS h WHERE h.token = x.token)
  WHERE x.token = ANY (ARRAY(SELECT token FROM held WHERE NOT ranges <@ fin AND ranges && fin))
)
SELECT coalesce(h.epoch, h.token), h.worker, w.id, h.claimed_at, s.seq, p.position, p.since
FROM held AS h
JOIN worker AS w ON w.number = h.worker
CROSS JOIN LATERAL unnest(h.ranges * h.fin) AS r
CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s (seq)
CROSS JOIN LATERAL (
  SELECT x.position, x.since
  FROM unnest(h.los, h.positions, h.sinces) AS x (lo, position, since)
  WHERE x.lo <= s.seq
  ORDER BY x.lo DESC
  LIMIT 1
) AS p
