-- schema_version: how many migrations were applied.
SELECT version FROM meta
