-- ready_queues: queues that are not paused and have pending tasks. Walks from queue to queue in the index, so that
-- it costs a look-up per queue with work, however many tasks wait.
-- in: $1 limit        out: name
WITH RECURSIVE r (queue) AS (
  (SELECT x.queue FROM ready AS x ORDER BY x.queue LIMIT 1)
  UNION ALL
  SELECT n.queue FROM r
  CROSS JOIN LATERAL (SELECT x.queue FROM ready AS x WHERE x.queue > r.queue ORDER BY x.queue LIMIT 1) AS n
)
SELECT q.name
FROM (SELECT r.queue FROM r LIMIT $1::int8) AS r
CROSS JOIN LATERAL (SELECT x.name FROM queue AS x WHERE x.id = r.queue AND NOT x.is_paused LIMIT 1) AS q
