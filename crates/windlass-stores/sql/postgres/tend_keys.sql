-- tend_keys: removes keys that have freed themselves.
-- in: $1 now, $2 limit
DELETE FROM uniq
WHERE digest = ANY (ARRAY(SELECT digest FROM uniq WHERE until <= $1::int8 ORDER BY until LIMIT $2::int8 FOR UPDATE SKIP LOCKED))
