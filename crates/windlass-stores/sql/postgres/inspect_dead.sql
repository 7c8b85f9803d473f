-- inspect_dead: dead rows of the tables of the schema that have many.
-- in: $1 from how many on        out: name, dead rows, rows
SELECT s.relname::text, s.n_dead_tup, s.n_live_tup
FROM pg_stat_user_tables AS s
WHERE s.schemaname = current_schema() AND s.n_dead_tup >= $1::int8 AND s.n_dead_tup > s.n_live_tup
ORDER BY 2 DESC
LIMIT 5
