-- inspect_rights: what the current role may not do and must.
-- out: what
SELECT format('%s on %s', r.need, c.relname)
FROM pg_class AS c
CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS r (need)
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relname NOT IN ('meta', 'identity')
  AND NOT has_table_privilege(c.oid, r.need)
UNION ALL
SELECT format('USAGE on sequence %s', c.relname)
FROM pg_class AS c
WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
  AND CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END
UNION ALL
SELECT format('EXECUTE on function %s', p.proname)
FROM pg_proc AS p
WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND NOT has_function_privilege(p.oid, 'EXECUTE')
  AND p.proname NOT IN ('enqueue', 'cancel', 'retry')
ORDER BY 1
