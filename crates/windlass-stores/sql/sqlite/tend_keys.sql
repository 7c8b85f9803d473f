-- tend: timed keys that have freed themselves.
-- in: ?1 now, ?2 limit
DELETE FROM unique_key
WHERE digest IN (SELECT digest FROM unique_key WHERE until <= ?1 LIMIT ?2)
