-- in: ?1 class, ?2 only keys after this, ?3 limit        out: the columns of `Document`
SELECT class, key, version, body, updated_at
FROM windlass_document
WHERE class = ?1
  -- Not `?2 IS NULL OR key > ?2`, which would walk the class from its start.
  AND key >= ifnull(?2, '')
  AND key IS NOT ?2
ORDER BY key
LIMIT ?3
