-- insert_keyed: remembers with which keys tasks were submitted.
-- in: $1 seq, $2 idempotency_key, $3 unique_digest, $4 unique_for_ms
INSERT INTO keyed (seq, idempotency_key, unique_digest, unique_for_ms)
SELECT u.seq, u.idempotency_key, u.unique_digest, u.unique_for_ms
FROM unnest($1::int8[], $2::text[], $3::bytea[], $4::int8[]) AS u (seq, idempotency_key, unique_digest, unique_for_ms)
