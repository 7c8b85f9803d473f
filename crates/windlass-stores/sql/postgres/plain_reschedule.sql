-- plain_reschedule: lets pending tasks that `take_ready` has taken wait for a time.
-- in: runs of numbers: $1 first, $2 last; $3 now, $4 history, $5 run_at
WITH
t AS MATERIALIZED (
  SELECT x.seq, x.queue, CASE WHEN x.priority BETWEEN 0 AND 3 THEN x.priority ELSE 1::int2 END AS priority, x.retention_ms
  FROM unnest($1::int8[], $2::int8[]) AS u (lo, hi)
  CROSS JOIN LATERAL rows_between(u.lo, u.hi) AS x
),
written AS (
  INSERT INTO fate (seq, attempts, crashes, updated_at, run_at, retention_ms, history)
  SELECT t.seq, 0, 0, $3::int8, $5::int8, t.retention_ms, $4::bytea FROM t
),
placed AS (
  INSERT INTO deferred (seq, run_at, queue, lane, bits, is_retry)
  SELECT t.seq, $5, t.queue, t.priority * 2, 1, false FROM t
)
INSERT INTO delta (queue, priority, pending, scheduled)
SELECT t.queue, t.priority, -count(*), count(*) FROM t GROUP BY 1, 2
