-- out: every definition of the schema, tables first
SELECT sql
FROM sqlite_schema
WHERE sql IS NOT NULL
  AND tbl_name LIKE 'windlass!_%' ESCAPE '!'
ORDER BY type = 'index', tbl_name, name
