-- save_lock: keeps other writers of one document away until the transaction ends.
-- in: $1 class, $2 key
SELECT pg_advisory_xact_lock(hashtextextended($1::text || ' ' || $2::text, 'document'::regclass::int8))
