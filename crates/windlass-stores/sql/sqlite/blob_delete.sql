-- in: ?1 and ?2, the first and last key
DELETE FROM windlass_blob
WHERE key BETWEEN ?1 AND ?2
