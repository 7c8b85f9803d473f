-- broker_generation: under which generation a broker held references of all pending tasks.
-- in: $1 name        out: generation, or NULL
SELECT b.generation FROM broker AS b WHERE b.name = $1::text
