-- insert_over_gone: removes rows of tasks that stand nowhere, for ones that come again under their numbers.
-- in: $1 seqs
WITH
gone AS MATERIALIZED (
  SELECT t.seq
  FROM unnest($1::int8[]) AS u (seq)
  CROSS JOIN LATERAL (SELECT x.seq FROM record AS x WHERE x.seq = u.seq AND x.state IS NULL LIMIT 1) AS t
),
a AS (DELETE FROM keyed AS x USING gone AS g WHERE x.seq = g.seq),
b AS (DELETE FROM result AS x USING gone AS g WHERE x.seq = g.seq),
removed AS (DELETE FROM task AS x USING gone AS g WHERE x.seq = g.seq RETURNING x.seq)
UPDATE generation AS g SET pruned = g.pruned - n.count
FROM (
  SELECT x.number, count(*) AS count FROM removed AS r JOIN generation AS x ON x.lo <= r.seq AND x.hi > r.seq GROUP BY 1
) AS n
WHERE g.number = n.number
