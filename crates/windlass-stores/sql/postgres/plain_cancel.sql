-- plain_cancel: cancels pending tasks that `take_ready` has taken.
-- in: runs of numbers: $1 first, $2 last; $3 now, $4 history
WITH
t AS MATERIALIZED (
  SELECT x.seq, x.queue, CASE WHEN x.priority BETWEEN 0 AND 3 THEN x.priority ELSE 1::int2 END AS priority, x.retention_ms
  FROM unnest($1::int8[], $2::int8[]) AS u (lo, hi)
  CROSS JOIN LATERAL rows_between(u.lo, u.hi) AS x
),
written AS (
  INSERT INTO fate (seq, state, attempts, crashes, finished_at, expires_at, updated_at, retention_ms, history)
  SELECT t.seq, 6, 0, 0, $3::int8, least($3 + least(t.retention_ms, 253402128000000), 253402128000000), $3,
    t.retention_ms, $4::bytea
  FROM t
)
INSERT INTO delta (queue, priority, pending, cancelled)
SELECT t.queue, t.priority, -count(*), count(*) FROM t GROUP BY 1, 2
