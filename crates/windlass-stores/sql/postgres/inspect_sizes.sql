-- inspect_sizes: how large the tables of the schema are, indexes included.
-- out: name, bytes
SELECT c.relname::text, pg_total_relation_size(c.oid)
FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
ORDER BY 2 DESC
