-- schema_make: makes the schema. Its name is put in, quoted: names cannot be bound.
CREATE SCHEMA IF NOT EXISTS "{schema}"
