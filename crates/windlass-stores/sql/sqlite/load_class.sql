-- in: ?1 class, ?2 only keys after this, ?3 limit        out: the columns of `Document`
SELECT class, key, version, body, updated_at
FROM windlass_document
WHERE class = ?1
  AND (?2 IS NULL OR key > ?2)
ORDER BY key
LIMIT ?3
