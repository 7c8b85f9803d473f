-- key_try: locks keys against other submits until the transaction ends, as far as nobody else has.
-- in: $1 hashes, sorted        out: those that were obtained
SELECT u.hash FROM unnest($1::int8[]) AS u (hash) WHERE pg_try_advisory_xact_lock(u.hash)
