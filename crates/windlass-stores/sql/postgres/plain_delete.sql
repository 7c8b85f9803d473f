-- plain_delete: removes pending tasks that `take_ready` has taken. They have nothing but their rows. The bounds leave most
-- partitions out.
-- in: runs of numbers: $1 first, $2 last; $3 the first number of all, $4 the last
WITH removed AS (
  DELETE FROM task AS x
  USING unnest($1::int8[], $2::int8[]) AS u (lo, hi)
  WHERE x.seq BETWEEN u.lo AND u.hi AND x.seq >= $3::int8 AND x.seq <= $4::int8
  RETURNING x.queue, CASE WHEN x.priority BETWEEN 0 AND 3 THEN x.priority ELSE 1::int2 END AS priority
)
INSERT INTO delta (queue, priority, pending)
SELECT r.queue, r.priority, -count(*) FROM removed AS r GROUP BY 1, 2
