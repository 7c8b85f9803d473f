-- leave: end a worker.
-- in: ?1 id, ?2 now
UPDATE windlass_worker
SET gone_at = ?2
WHERE id = ?1
  AND gone_at IS NULL
