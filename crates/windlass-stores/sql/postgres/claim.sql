-- claim: leases the first pending tasks of some lanes to a worker, under one token. Finds nothing, and writes
-- nothing, when the worker may not claim. Nothing is written per task; a range is split by deleting it and
-- inserting its rest.
-- in: $1 the time in a test, or NULL, $2 worker, $3 limit, $4 suspects at most, $5 ranges to lock at most
--     lanes in the order of claiming: $6 queue name, $7 lane, $8 number of its quota, $9 at most in the quota,
--     $10 position from which on to look, $11 ranges to lock at most in it, $12 last position to look at,
--     $13 the only range to take, by its first number, or NULL
--     $14 payload bytes at which it stops, at least one; payloads that cannot be long are not counted
-- out: token, now, ranges locked, order, position, then the task's columns and its fate; with the last task of a range
--     of which a rest was left also the last number of that rest, and the transaction; since when it was pending
-- Lines with --+ are for stores with brokers: what triggers do for other statements is done here at less cost.
WITH
time AS MATERIALIZED (
  SELECT clock($1::int8) AS now, set_config('windlass.claims', 'on', true) AS claims
  --+ , set_config('windlass.notes', 'own', true) AS notes
),
me AS MATERIALIZED (
  SELECT w.number FROM worker AS w
  WHERE w.id = $2::text AND w.gone_at IS NULL AND w.lease_until > (SELECT now FROM time)
),
-- The outer LIMIT stops before the next lane is locked: a lane that may hold more must be emptied first.
pick AS MATERIALIZED (
  SELECT r.tid, r.position, r.lo, r.hi, r.since, r.queue, r.lane, r.bits, l.ord, l.quota, l.most
  FROM unnest(
    $6::text[], $7::int2[], $8::int4[], $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::int8[]
  ) WITH ORDINALITY AS l (name, lane, quota, most, hint, rows, until, first, ord)
  CROSS JOIN LATERAL (SELECT x.id FROM queue AS x WHERE x.name = l.name AND NOT x.is_paused LIMIT 1) AS q
  CROSS JOIN LATERAL (
    SELECT x.ctid AS tid, x.position, x.lo, x.hi, x.since, x.queue, x.lane, x.bits
    FROM ready AS x
    WHERE x.queue = q.id AND x.lane = l.lane AND x.position >= l.hint AND x.position <= l.until
      AND (l.first IS NULL OR x.lo = l.first) AND EXISTS (SELECT FROM me)
    ORDER BY x.position
    LIMIT least($5::int8, l.rows)
    FOR UPDATE SKIP LOCKED
  ) AS r
  LIMIT $5::int8
),
fit AS (
  SELECT p.*,
    CASE
      WHEN p.lane % 2 = 1 AND count(*) FILTER (WHERE p.lane % 2 = 1) OVER (ORDER BY p.ord, p.position, p.lo) > $4::int8
      THEN 0
      ELSE (p.hi - p.lo + 1)::int4
    END AS size
  FROM pick AS p
),
share AS (
  SELECT f.*,
    greatest(0, least(
      f.size, f.most - (sum(f.size) OVER (PARTITION BY f.quota ORDER BY f.ord, f.position, f.lo) - f.size)
    ))::int4 AS part
  FROM fit AS f
),
allowed AS MATERIALIZED (
  SELECT c.*, c.lo + c.given - 1 AS last
  FROM (
    SELECT s.*,
      greatest(0, least(
        s.part, $3::int8 - (sum(s.part) OVER (ORDER BY s.ord, s.position, s.lo) - s.part)
      )) AS given
    FROM share AS s
  ) AS c
  WHERE c.given > 0
),
-- Only where payloads may be long: each task with the bytes in front of it, and the first that has too many there.
sized AS MATERIALIZED (
  SELECT c.ord, c.position, t.seq,
    sum(octet_length(t.payload)) OVER (ORDER BY c.ord, c.position, t.seq) - octet_length(t.payload) AS before
  FROM allowed AS c
  CROSS JOIN LATERAL rows_between(c.lo, c.last) AS t
  WHERE c.bits & 5 <> 0
),
stop AS MATERIALIZED (
  SELECT s.ord, s.position, s.seq
  FROM sized AS s
  WHERE s.before >= $14::int8
  ORDER BY s.ord, s.position, s.seq
  LIMIT 1
),
chosen AS MATERIALIZED (
  SELECT c.tid, c.position, c.lo, c.hi, c.since, c.queue, c.lane, c.bits, c.ord, c.last, c.last - c.lo + 1 AS given
  FROM (
    SELECT a.tid, a.position, a.lo, a.hi, a.since, a.queue, a.lane, a.bits, a.ord,
      CASE WHEN (a.ord, a.position) = (s.ord, s.position) THEN least(a.last, s.seq - 1) ELSE a.last END AS last
    FROM allowed AS a
    LEFT JOIN stop AS s ON true
    WHERE s.seq IS NULL OR (a.ord, a.position, a.lo) < (s.ord, s.position, s.seq)
  ) AS c
),
-- Whoever declares the worker lost waits for this, and then finds the lease.
sure AS MATERIALIZED (
  SELECT w.number FROM worker AS w
  WHERE w.id = $2::text AND w.gone_at IS NULL AND w.lease_until > (SELECT now FROM time)
    AND EXISTS (SELECT FROM chosen)
  FOR KEY SHARE
),
taken AS MATERIALIZED (SELECT c.* FROM chosen AS c WHERE EXISTS (SELECT FROM sure)),
gone AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT tid FROM taken))),
rest AS (
  INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
  SELECT position, last + 1, hi, since, queue, lane, bits FROM taken WHERE last < hi
),
--+ noted AS (
--+   INSERT INTO outbox (xact, made_at, position, lo, hi, queue, lane)
--+   SELECT pg_current_xact_id()::text::int8, clock(NULL), position, last + 1, hi, queue, lane FROM taken WHERE last < hi
--+ ),
--+ counted_rows AS (
--+   INSERT INTO ready_count (queue, lane, rows) SELECT queue, lane, -count(*) FROM taken WHERE last = hi GROUP BY 1, 2
--+ ),
leased AS (
  INSERT INTO lease (token, claimed_at, worker, los, positions, sinces, ranges)
  SELECT nextval('token_seq') * 2 + bool_or(t.bits & 2 <> 0)::int4, (SELECT now FROM time), (SELECT number FROM sure),
    array_agg(t.lo), array_agg(t.position), array_agg(t.since), range_agg(int8range(t.lo, t.last, '[]'))
  FROM taken AS t
  HAVING count(*) > 0
  RETURNING token
),
counted AS (
  INSERT INTO delta (queue, priority, pending, running)
  SELECT queue, lane / 2, -sum(given), sum(given) FROM taken GROUP BY 1, 2
)
SELECT l.token, (SELECT now FROM time), (SELECT count(*) FROM pick), c.ord, c.position,
  t.seq, t.stamp, t.created_at, t.timeout_ms, t.retention_ms, t.queue, t.kind, t.max_retries, t.max_crashes,
  t.priority, t.extras, t.payload, coalesce(f.attempts, 0), coalesce(f.crashes, 0), f.retention_ms,
  CASE WHEN c.last < c.hi AND t.seq = c.last THEN c.hi END,
  CASE WHEN c.last < c.hi AND t.seq = c.last THEN pg_current_xact_id()::text::int8 END,
  c.since
FROM leased AS l
CROSS JOIN taken AS c
CROSS JOIN LATERAL rows_between(c.lo, c.last) AS t
LEFT JOIN LATERAL (
  SELECT x.attempts, x.crashes, x.retention_ms FROM fate AS x WHERE c.bits & 1 = 1 AND x.seq = t.seq LIMIT 1
) AS f ON true
