-- forget: removes everything of tasks but their unique keys. The bounds leave most partitions out; a join might
-- read all of one.
-- in: $1 seqs
WITH
span AS MATERIALIZED (SELECT min(u.seq) AS lo, max(u.seq) AS hi FROM unnest($1::int8[]) AS u (seq)),
a AS (DELETE FROM fate WHERE seq = ANY ($1::int8[])),
b AS (DELETE FROM progress WHERE seq = ANY ($1::int8[])),
c AS (
  DELETE FROM keyed WHERE seq = ANY ($1::int8[]) AND seq >= (SELECT lo FROM span) AND seq <= (SELECT hi FROM span)
),
d AS (
  DELETE FROM result WHERE seq = ANY ($1::int8[]) AND seq >= (SELECT lo FROM span) AND seq <= (SELECT hi FROM span)
)
DELETE FROM task WHERE seq = ANY ($1::int8[]) AND seq >= (SELECT lo FROM span) AND seq <= (SELECT hi FROM span)
