-- promote_twice: takes tasks that are due out of `deferred` that stand in `ready` too: there a worker finds them. A range
-- that holds no task and begins with one that is due gives way to that task.
-- in: $1 now, $2 limit        out: of tasks that were taken out: seq, queue name and stamp, or NULL where they are not known
WITH
due AS MATERIALIZED (
  SELECT d.ctid AS tid, d.seq
  FROM deferred AS d
  WHERE d.run_at <= $1::int8
  ORDER BY d.run_at, d.seq
  LIMIT $2::int8
  FOR UPDATE SKIP LOCKED
),
twice AS MATERIALIZED (
  SELECT d.tid
  FROM due AS d
  CROSS JOIN LATERAL (SELECT r.hi FROM ready AS r WHERE r.lo <= d.seq ORDER BY r.lo DESC LIMIT 1) AS z
  WHERE z.hi >= d.seq
),
gone AS (
  DELETE FROM deferred WHERE ctid = ANY (ARRAY(SELECT tid FROM twice)) RETURNING seq, queue, lane, is_retry
),
hollow AS (DELETE FROM ready WHERE lo = ANY (ARRAY(SELECT seq FROM due)) AND hi < lo),
-- Each was counted once, where it was put by windlass.
counted AS (
  INSERT INTO delta (queue, priority, scheduled, retrying, pending)
  SELECT queue, lane / 2, -count(*) FILTER (WHERE NOT is_retry), -count(*) FILTER (WHERE is_retry), count(*)
  FROM gone
  GROUP BY 1, 2
)
SELECT g.seq, q.name, t.stamp
FROM gone AS g
LEFT JOIN queue AS q ON q.id = g.queue
LEFT JOIN LATERAL (SELECT x.stamp FROM task AS x WHERE x.seq = g.seq LIMIT 1) AS t ON true
