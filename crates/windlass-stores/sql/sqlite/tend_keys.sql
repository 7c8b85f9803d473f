-- tend: timed keys that have freed themselves.
-- in: ?1 now, ?2 limit
DELETE FROM windlass_unique_key
WHERE digest IN (SELECT digest FROM windlass_unique_key WHERE until <= ?1 LIMIT ?2)
