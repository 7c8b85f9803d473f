-- out: how many tables there are
SELECT count(*)
FROM sqlite_schema
WHERE type = 'table'
