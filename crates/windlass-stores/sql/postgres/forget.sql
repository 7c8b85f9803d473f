-- forget: removes everything of tasks but their unique keys.
-- in: $1 seqs
WITH
a AS (DELETE FROM fate WHERE seq = ANY ($1::int8[])),
b AS (DELETE FROM progress WHERE seq = ANY ($1::int8[])),
c AS (DELETE FROM keyed AS x USING unnest($1::int8[]) AS u (seq) WHERE x.seq = u.seq),
d AS (DELETE FROM result AS x USING unnest($1::int8[]) AS u (seq) WHERE x.seq = u.seq)
DELETE FROM task AS x USING unnest($1::int8[]) AS u (seq) WHERE x.seq = u.seq
