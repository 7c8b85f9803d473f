-- generation_make: makes the missing partitions for numbers.
-- in: $1 numbers, $2 the time in a test, or NULL        out: the generations, as number >> 32, that were never reserved
SELECT g.slot
FROM (SELECT u.seq >> 32 AS slot, min(u.seq) AS seq FROM unnest($1::int8[]) AS u (seq) GROUP BY 1 ORDER BY 1) AS g
WHERE NOT make_generation(g.seq, $2::int8)
