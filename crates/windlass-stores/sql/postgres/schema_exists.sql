-- schema_exists: whether windlass has tables in the schema.
-- in: $1 schema        out: whether the schema is there, whether the tables are
SELECT to_regnamespace(quote_ident($1::text)) IS NOT NULL, to_regclass(quote_ident($1::text) || '.meta') IS NOT NULL
