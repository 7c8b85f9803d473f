-- place: write what a decision made of a task. The caller has checked state and epoch in the same
-- transaction, which no other writer can enter.
-- in: ?1 number, then the columns in order
UPDATE windlass_task
SET state = ?2,
    attempts = ?3,
    crashes = ?4,
    position = ?5,
    pending_at = ?6,
    updated_at = ?7,
    run_at = ?8,
    started_at = ?9,
    finished_at = ?10,
    expires_at = ?11,
    applied_epoch = ?12,
    retention_ms = ?13,
    cancel_requested = ?14,
    large = ?15,
    result = ?16,
    history = ?17,
    progress = iif(?2 = 1, NULL, progress)
WHERE number = ?1
