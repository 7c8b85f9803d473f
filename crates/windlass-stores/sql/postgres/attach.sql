-- attach: puts runs that have a lease of their own back under the token of their claim, unless an open transaction
-- is about to complete them.
-- in: pairs: $1 token of the claim, $2 seq        out: of those that have one: token, seq, whether it is back
WITH
wanted AS MATERIALIZED (SELECT u.token, u.seq FROM unnest($1::int8[], $2::int8[]) AS u (token, seq) ORDER BY 1, 2),
own AS MATERIALIZED (
  SELECT x.*, w.seq
  FROM wanted AS w
  CROSS JOIN LATERAL (
    SELECT z.* FROM lease AS z WHERE z.epoch = w.token AND z.ranges @> w.seq FOR UPDATE SKIP LOCKED
  ) AS x
),
gone AS (DELETE FROM lease AS x WHERE x.token = ANY (ARRAY(SELECT token FROM own))),
back AS (
  INSERT INTO lease AS x (token, claimed_at, worker, los, positions, sinces, ranges)
  SELECT o.epoch, min(o.claimed_at), min(o.worker), array_agg(o.los[1]), array_agg(o.positions[1]), array_agg(o.sinces[1]),
    range_agg(int8range(o.seq, o.seq, '[]'))
  FROM own AS o
  GROUP BY o.epoch
  ON CONFLICT (token) DO UPDATE SET
    los = x.los || excluded.los, positions = x.positions || excluded.positions, sinces = x.sinces || excluded.sinces,
    ranges = x.ranges + excluded.ranges
)
SELECT w.token, w.seq, EXISTS (SELECT FROM own AS o WHERE o.epoch = w.token AND o.seq = w.seq)
FROM wanted AS w
WHERE EXISTS (SELECT FROM lease AS x WHERE x.epoch = w.token AND x.ranges @> w.seq)
