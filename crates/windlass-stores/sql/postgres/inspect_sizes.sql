-- inspect_sizes: how large the tables of the schema are, with their partitions and indexes.
-- out: name, bytes
SELECT coalesce(p.relname, c.relname)::text, sum(pg_total_relation_size(c.oid))::int8
FROM pg_class AS c
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
LEFT JOIN pg_class AS p ON p.oid = i.inhparent
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r'
GROUP BY 1
ORDER BY 2 DESC
