-- insert: stores tasks that are pending at once and have no keys. Fails as a whole when a number is taken.
-- in: $1 the time in a test, or NULL
--     tasks: $2 seq, $3 stamp, $4 queue, $5 kind, $6 priority, $7 max_retries, $8 max_crashes,
--            $9 timeout_ms, $10 retention_ms, $11 extras, $12 payload
--     ranges of them, in order: $13 queue, $14 lane, $15 lo, $16 hi, $17 bits
-- out: of each range: transaction, position, lo, hi, queue, lane; and the time
-- Lines with --+ are for stores with brokers: what triggers do for other statements is done here at less cost.
WITH
time AS MATERIALIZED (
  SELECT clock($1::int8) AS now
  --+ , set_config('windlass.notes', 'own', true) AS notes
),
stored AS (
  INSERT INTO task (
    seq, stamp, created_at, run_at, timeout_ms, retention_ms, queue, kind, max_retries, max_crashes,
    priority, extras, payload
  )
  SELECT u.seq, u.stamp, (SELECT now FROM time), 0, u.timeout_ms, u.retention_ms, u.queue, u.kind, u.max_retries,
    u.max_crashes, u.priority, u.extras, u.payload
  FROM unnest(
    $2::int8[], $3::int8[], $4::int4[], $5::int4[], $6::int2[], $7::int4[], $8::int4[], $9::int8[], $10::int8[],
    $11::bytea[], $12::bytea[]
  ) AS u (
    seq, stamp, queue, kind, priority, max_retries, max_crashes, timeout_ms, retention_ms, extras, payload
  )
),
counted AS (
  INSERT INTO delta (queue, priority, pending)
  SELECT u.queue, u.lane / 2, sum(u.hi - u.lo + 1)
  FROM unnest($13::int4[], $14::int2[], $15::int8[], $16::int8[]) AS u (queue, lane, lo, hi)
  GROUP BY 1, 2
),
made AS (
  INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
  SELECT nextval('position_seq'), u.lo, u.hi, (SELECT now FROM time), u.queue, u.lane, u.bits
  FROM unnest($13::int4[], $14::int2[], $15::int8[], $16::int8[], $17::int2[]) AS u (queue, lane, lo, hi, bits)
  RETURNING position, lo, hi, queue, lane
)
--+ , noted AS (
--+   INSERT INTO outbox (xact, made_at, position, lo, hi, queue, lane)
--+   SELECT pg_current_xact_id()::text::int8, clock(NULL), m.position, m.lo, m.hi, m.queue, m.lane FROM made AS m
--+ ),
--+ counted_rows AS (
--+   INSERT INTO ready_count (queue, lane, rows) SELECT m.queue, m.lane, count(*) FROM made AS m GROUP BY 1, 2
--+ )
SELECT pg_current_xact_id()::text::int8, m.position, m.lo, m.hi, m.queue, m.lane, (SELECT now FROM time)
FROM made AS m
