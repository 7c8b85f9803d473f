-- key_wait: locks a key against other submits until the transaction ends.
-- in: $1 hash
SELECT pg_advisory_xact_lock($1::int8)
