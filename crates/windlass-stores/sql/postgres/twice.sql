-- twice: tasks that stand in several places.
-- in: $1 limit        out: seq, stamp and queue name, or NULL where they are not known
SELECT s.seq, t.stamp, q.name
FROM (
  SELECT x.seq FROM standing(0, 4611686018427387904) AS x GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT $1::int8
) AS s
LEFT JOIN task AS t ON t.seq = s.seq
LEFT JOIN queue AS q ON q.id = t.queue
ORDER BY s.seq
