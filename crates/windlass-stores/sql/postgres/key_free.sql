-- key_free: frees keys, if these tasks are their holders.
-- in: $1 digest, $2 seq
DELETE FROM uniq AS x
USING unnest($1::bytea[], $2::int8[]) AS u (digest, seq)
WHERE x.digest = u.digest AND x.seq = u.seq
