-- free a key, only by its owner.
-- in: ?1 digest, ?2 holder
DELETE FROM windlass_unique_key
WHERE digest = ?1
  AND holder = ?2
