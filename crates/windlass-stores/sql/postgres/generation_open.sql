-- generation_open: lets numbers be taken from a new generation.
-- in: $1 now
SELECT open_generation($1::int8)
