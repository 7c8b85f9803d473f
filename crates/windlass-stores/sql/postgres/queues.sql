-- queues: every queue that has or had tasks or orders.
-- out: name, is_paused, pending since, id
SELECT q.name, q.is_paused,
  -- Most queues are idle: one look instead of one for each lane.
  CASE WHEN EXISTS (SELECT FROM ready AS x WHERE x.queue = q.id) THEN (
    SELECT min(r.since)
    FROM generate_series(0, 7) AS l (lane)
    CROSS JOIN LATERAL (
      SELECT x.since FROM ready AS x WHERE x.queue = q.id AND x.lane = l.lane ORDER BY x.position LIMIT 1
    ) AS r
  ) END,
  q.id
FROM queue AS q
WHERE q.is_ordered
  OR EXISTS (SELECT FROM counter AS c WHERE c.queue = q.id)
  OR EXISTS (SELECT FROM delta AS d WHERE d.queue = q.id)
