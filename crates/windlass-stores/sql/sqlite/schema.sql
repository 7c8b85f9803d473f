-- out: every definition of the schema, tables first
SELECT sql
FROM sqlite_schema
WHERE sql IS NOT NULL
ORDER BY type = 'index', tbl_name, name
