-- inspect_partitions: tables in parts.
-- out: name, how many parts
SELECT c.relname::text, count(i.inhrelid)
FROM pg_class AS c
LEFT JOIN pg_inherits AS i ON i.inhparent = c.oid
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'p'
GROUP BY 1
ORDER BY 1
