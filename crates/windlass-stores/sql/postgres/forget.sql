-- forget: removes everything of tasks but their unique keys.
-- in: $1 seqs        out: queue, priority, how many
WITH
a AS (DELETE FROM fate WHERE seq = ANY ($1::int8[])),
b AS (DELETE FROM keyed WHERE seq = ANY ($1::int8[])),
c AS (DELETE FROM result WHERE seq = ANY ($1::int8[])),
d AS (DELETE FROM progress WHERE seq = ANY ($1::int8[])),
e AS (DELETE FROM task WHERE seq = ANY ($1::int8[]) RETURNING queue, priority)
SELECT queue, priority, count(*) FROM e GROUP BY 1, 2
