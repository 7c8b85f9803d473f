-- misplaced: tasks that stand in no place or in several.
-- out: how many
SELECT count(*)
FROM (
  SELECT t.seq, count(p.seq) AS places
  FROM task AS t
  LEFT JOIN (
    SELECT d.seq FROM deferred AS d
    UNION ALL
    SELECT s.seq FROM ready AS r CROSS JOIN LATERAL generate_series(r.lo, r.hi) AS s (seq)
    UNION ALL
    SELECT s.seq
    FROM lease AS l
    CROSS JOIN LATERAL unnest(l.ranges) AS r
    CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s (seq)
    UNION ALL
    SELECT f.seq FROM fate AS f WHERE f.state IS NOT NULL
    UNION ALL
    SELECT d.block * 1024 + u.o FROM done AS d CROSS JOIN LATERAL unnest(d.offsets) AS u (o)
  ) AS p ON p.seq = t.seq
  GROUP BY t.seq
) AS c
WHERE c.places <> 1
