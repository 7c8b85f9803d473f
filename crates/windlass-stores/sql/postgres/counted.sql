-- counted: how many tasks are in each state, as counted.
-- out: queue name, priority, a count for each state
SELECT q.name, c.priority,
  (count(*) FILTER (WHERE c.state = 0)), (count(*) FILTER (WHERE c.state = 1)), (count(*) FILTER (WHERE c.state = 2)),
  (count(*) FILTER (WHERE c.state = 3)), (count(*) FILTER (WHERE c.state = 4)), (count(*) FILTER (WHERE c.state = 5)),
  (count(*) FILTER (WHERE c.state = 6))
FROM (
  -- A priority that cannot be read counts as normal, as everywhere.
  SELECT t.queue, CASE WHEN t.priority BETWEEN 0 AND 3 THEN t.priority ELSE 1::int2 END AS priority, p.state
  FROM (
    SELECT CASE WHEN d.is_retry THEN 3 ELSE 0 END AS state, d.seq FROM deferred AS d
    UNION ALL
    SELECT 1, s.seq FROM ready AS r CROSS JOIN LATERAL generate_series(r.lo, r.hi) AS s (seq)
    UNION ALL
    SELECT 2, s.seq
    FROM lease AS l
    CROSS JOIN LATERAL unnest(l.ranges) AS r
    CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s (seq)
    UNION ALL
    SELECT f.state, f.seq FROM fate AS f WHERE f.state IS NOT NULL
    UNION ALL
    SELECT 4, d.block * 1024 + u.o FROM done AS d CROSS JOIN LATERAL unnest(d.offsets) AS u (o)
  ) AS p
  JOIN task AS t ON t.seq = p.seq
) AS c
JOIN queue AS q ON q.id = c.queue
GROUP BY 1, 2
