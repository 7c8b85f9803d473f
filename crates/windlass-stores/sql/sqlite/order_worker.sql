-- order: tell a worker what to do, in its next beat.
-- in: ?1 id, ?2 run_order        changes 1, or 0 when there is no such worker
UPDATE windlass_worker
SET run_order = ?2
WHERE id = ?1
  AND gone_at IS NULL
