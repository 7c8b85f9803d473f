-- complete: the happy end of a run, which leaves history, position and counters as they are.
-- in: ?1 number, ?2 attempts, ?3 now, ?4 started_at, ?5 expires_at, ?6 retention_ms, ?7 large, ?8 result
UPDATE windlass_task
SET state = 4,
    attempts = ?2,
    updated_at = ?3,
    started_at = ?4,
    finished_at = ?3,
    expires_at = ?5,
    applied_epoch = epoch,
    retention_ms = ?6,
    cancel_requested = 0,
    large = ?7,
    result = ?8
WHERE number = ?1
