-- prune_lock: keeps generations as they are until the transaction ends; for many at once.
SELECT pg_advisory_xact_lock_shared('generation'::regclass::int8)
