-- ready_counts: adds up how many rows `ready` has by lane.
-- out: queue, lane, rows, how many of them are in the outbox
WITH
d AS (DELETE FROM ready_count RETURNING queue, lane, rows),
total AS MATERIALIZED (SELECT d.queue, d.lane, sum(d.rows)::int8 AS rows FROM d GROUP BY 1, 2 HAVING sum(d.rows) <> 0),
kept AS (INSERT INTO ready_count (queue, lane, rows) SELECT t.queue, t.lane, t.rows FROM total AS t)
SELECT t.queue, t.lane, t.rows, coalesce(o.rows, 0)
FROM total AS t
LEFT JOIN (SELECT x.queue, x.lane, count(*) AS rows FROM outbox AS x WHERE x.hi >= x.lo GROUP BY 1, 2) AS o
  ON o.queue = t.queue AND o.lane = t.lane
