-- in: ?1 class, ?2 key
DELETE FROM windlass_document
WHERE class = ?1
  AND key = ?2
