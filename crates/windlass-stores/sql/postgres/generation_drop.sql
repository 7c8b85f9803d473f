-- generation_drop: drops generations in which no task stands.
-- in: $1 their first numbers        out: how many
SELECT drop_generations($1::int8[])
