-- schema_script: around the migrations of a script for psql: what comes before them, and after the line `-- migrations` what
-- comes behind. Put in: {schema}, the schema as a text literal holds it; {from}, {to}, versions.
BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL standard_conforming_strings = on;
SET LOCAL check_function_bodies = on;
SET LOCAL windlass.schema = '{schema}';
DO $windlass$
DECLARE
  wanted text := current_setting('windlass.schema');
  version_found int4 := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('windlass migrate ' || wanted, 0));
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = wanted) THEN
    EXECUTE format('CREATE SCHEMA %I', wanted);
  END IF;
  PERFORM set_config('search_path', quote_ident(wanted), true);
  IF EXISTS (
    SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = wanted AND c.relname = 'meta'
  ) THEN
    SELECT m.version INTO version_found FROM meta AS m;
  END IF;
  IF version_found <> {from} THEN
    RAISE EXCEPTION 'the schema has version %, this script begins at {from}: print it again', version_found
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
END $windlass$;

-- migrations
UPDATE meta SET version = {to};
COMMIT;
