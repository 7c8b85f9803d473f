-- claim: how long the large payloads of the first tasks of one lane are.
-- in: ?1 queue, ?2 priority, ?3 suspects 0 or 1, ?4 limit
-- out: position, bytes (0 for a payload that is not large), in no particular order
SELECT t.position, coalesce(length(b.data), 0)
FROM (
  SELECT number, position
  FROM windlass_task
  WHERE state = 1
    AND queue = ?1
    AND priority = ?2
    AND (crashes >= 2) = ?3
  ORDER BY position
  LIMIT ?4
) AS t
LEFT JOIN windlass_blob AS b ON b.key = 2 * t.number
