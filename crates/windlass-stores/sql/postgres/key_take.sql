-- key_take: gives keys to a new holder.
-- in: $1 digest, $2 seq, $3 stamp, $4 until
INSERT INTO uniq (digest, seq, stamp, until)
SELECT u.digest, u.seq, u.stamp, u.until
FROM unnest($1::bytea[], $2::int8[], $3::int8[], $4::int8[]) AS u (digest, seq, stamp, until)
ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq, stamp = excluded.stamp, until = excluded.until
