-- schema_lock: lets one process migrate a schema at a time.
-- in: $1 schema
SELECT pg_advisory_xact_lock(hashtextextended('windlass migrate ' || $1::text, 0))
