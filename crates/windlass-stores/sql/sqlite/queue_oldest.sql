-- the task that stands first in one lane.
-- in: ?1 queue, ?2 priority, ?3 suspects 0 or 1        out: pending_at
SELECT pending_at
FROM windlass_task
WHERE state = 1
  AND queue = ?1
  AND priority = ?2
  AND (crashes >= 2) = ?3
ORDER BY position
LIMIT 1
