-- key_find: who holds keys.
-- in: $1 digests        out: digest, seq, stamp, until
SELECT digest, seq, stamp, until FROM uniq WHERE digest = ANY ($1::bytea[])
