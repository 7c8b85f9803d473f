-- misplaced: tasks that stand in no place or in several, without having been pruned.
-- out: how many
SELECT
  (SELECT count(*) FROM (SELECT s.seq FROM standing(0, 4611686018427387904) AS s GROUP BY 1 HAVING count(*) > 1) AS twice)
  + (
    SELECT coalesce(sum(abs(c.rows - c.stand - c.pruned)), 0) + (SELECT count(*) FROM standing(0, 4611686018427387904))
      - coalesce(sum(c.stand), 0)
    FROM (
      SELECT g.pruned, (SELECT count(*) FROM task AS t WHERE t.seq >= g.lo AND t.seq < g.hi) AS rows,
        (SELECT count(*) FROM standing(g.lo, g.hi)) AS stand
      FROM generation AS g
    ) AS c
  )::int8
