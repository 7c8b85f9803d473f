-- claim: whether anything stands in one lane; far cheaper than a claim that finds nothing.
-- in: ?1 queue, ?2 priority, ?3 suspects 0 or 1        out: a row, or none
SELECT 1
FROM windlass_task
WHERE state = 1
  AND queue = ?1
  AND priority = ?2
  AND (crashes >= 2) = ?3
LIMIT 1
