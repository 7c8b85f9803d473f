-- prune_rows: counts tasks as gone that were taken out of their places. Their rows stay until their generation is
-- dropped; a copy that is being made of it will not have them.
-- in: $1 seqs        out: queue, priority, how many
WITH
a AS (DELETE FROM fate WHERE seq = ANY ($1::int8[])),
b AS (DELETE FROM progress WHERE seq = ANY ($1::int8[])),
gone AS MATERIALIZED (
  SELECT t.seq, t.queue, CASE WHEN t.priority BETWEEN 0 AND 3 THEN t.priority ELSE 1::int2 END AS priority
  FROM unnest($1::int8[]) AS u (seq)
  CROSS JOIN LATERAL (SELECT x.seq, x.queue, x.priority FROM task AS x WHERE x.seq = u.seq LIMIT 1) AS t
),
noted AS (
  INSERT INTO rewrite_change (seq)
  SELECT g.seq FROM gone AS g JOIN rewrite AS r ON g.seq >= r.lo AND g.seq < r.hi
),
counted AS (
  UPDATE generation AS g SET pruned = g.pruned + n.count
  FROM (
    SELECT x.number, count(*) AS count FROM gone AS r JOIN generation AS x ON x.lo <= r.seq AND x.hi > r.seq GROUP BY 1
  ) AS n
  WHERE g.number = n.number
)
SELECT queue, priority, count(*) FROM gone GROUP BY 1, 2
