-- note that a running task shall be cancelled.
-- in: ?1 number, ?2 now, ?3 history
UPDATE windlass_task
SET cancel_requested = 1,
    updated_at = ?2,
    history = ?3
WHERE number = ?1
