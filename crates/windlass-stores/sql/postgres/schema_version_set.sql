-- schema_version_set: how many migrations are applied now.
-- in: $1 version
UPDATE meta SET version = $1::int4
