-- detach: gives a running task a lease of its own under the epoch that it has, unless it has one.
-- in: $1 token of its claim, $2 seq        out: the token of that lease; nothing when the task is not held
WITH
own AS MATERIALIZED (SELECT x.token FROM lease AS x WHERE x.epoch = $1::int8 AND x.ranges @> $2::int8),
held AS MATERIALIZED (
  SELECT x.*, int8multirange(int8range($2::int8, $2::int8, '[]')) AS one
  FROM lease AS x
  WHERE x.token = $1::int8 AND x.epoch IS NULL AND x.ranges @> $2::int8
  FOR UPDATE
),
gone AS (DELETE FROM lease AS x WHERE x.token = ANY (ARRAY(SELECT token FROM held WHERE ranges <@ one))),
cut AS (
  UPDATE lease AS x SET ranges = x.ranges - (SELECT h.one FROM held AS h)
  WHERE x.token = ANY (ARRAY(SELECT token FROM held WHERE NOT ranges <@ one))
),
made AS (
  INSERT INTO lease (token, claimed_at, worker, los, positions, sinces, ranges, epoch)
  SELECT nextval('token_seq') * 2 + h.token % 2, h.claimed_at, h.worker, ARRAY[p.lo], ARRAY[p.position], ARRAY[p.since],
    h.one, h.token
  FROM held AS h
  CROSS JOIN LATERAL (
    SELECT x.lo, x.position, x.since
    FROM unnest(h.los, h.positions, h.sinces) AS x (lo, position, since)
    WHERE x.lo <= $2::int8
    ORDER BY x.lo DESC
    LIMIT 1
  ) AS p
  RETURNING token
)
SELECT token FROM made UNION ALL SELECT token FROM own
