-- lost: tasks that stand in no place, of generations of which nothing was pruned. Of others nobody can tell which rows
-- were pruned and which lost their place.
-- in: $1 limit        out: seq, stamp, queue name or NULL, queue, priority, crashes, bits
SELECT t.seq, t.stamp, q.name, t.queue, t.priority, f.crashes,
  (
    1
    + CASE WHEN k.unique_digest IS NOT NULL AND k.unique_for_ms IS NULL THEN 2 ELSE 0 END
    + CASE WHEN octet_length(t.payload) > 4096 THEN 4 ELSE 0 END
  )::int2
FROM (
  SELECT x.seq
  FROM generation AS g
  CROSS JOIN LATERAL (
    SELECT r.seq FROM task AS r WHERE r.seq >= g.lo AND r.seq < g.hi
    EXCEPT
    SELECT s.seq FROM standing(g.lo, g.hi) AS s
  ) AS x
  WHERE g.pruned = 0
  ORDER BY x.seq
  LIMIT $1::int8
) AS l
JOIN task AS t ON t.seq = l.seq
LEFT JOIN fate AS f ON f.seq = l.seq
LEFT JOIN keyed AS k ON k.seq = l.seq
LEFT JOIN queue AS q ON q.id = t.queue
ORDER BY t.seq
