-- out: 1 when the database has windlass's tables, else 0
SELECT count(*)
FROM sqlite_schema
WHERE type = 'table'
  AND name = 'windlass_meta'
