-- in: ?1 class, ?2 key        out: the columns of `Document`
SELECT class, key, version, body, updated_at
FROM windlass_document
WHERE class = ?1
  AND key = ?2
