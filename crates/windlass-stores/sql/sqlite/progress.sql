-- note how far a run has come, only while its lease is valid.
-- in: ?1 id, ?2 epoch, ?3 progress
UPDATE windlass_task
SET progress = ?3
WHERE id = ?1
  AND epoch = ?2
  AND state = 2
