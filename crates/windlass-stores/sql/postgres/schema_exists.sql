-- schema_exists: whether windlass has tables in the schema. Asked of the catalog's tables, as they are committed:
-- `to_regclass` may answer from what the connection remembers, which is old after the wait for a lock.
-- in: $1 schema        out: whether the schema is there, whether the tables are, which right the role lacks to look
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::text),
  EXISTS (
    SELECT FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relname = 'meta'
  ),
  CASE
    WHEN NOT (SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::text)
      THEN 'USAGE'
    WHEN NOT (
      SELECT has_table_privilege(c.oid, 'SELECT')
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      WHERE n.nspname = $1::text AND c.relname = 'meta'
    ) THEN 'SELECT on its tables'
  END
