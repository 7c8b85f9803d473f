-- insert: store one new task; does nothing when its id is there already.
-- in: the columns in order        changes 1, or 0 when the id is taken
INSERT INTO windlass_task (
  number, id, state, queue, priority, kind, position, pending_at,
  max_retries, max_crashes, timeout_ms, retention_ms, created_at, updated_at, run_at,
  idempotency_key, unique_digest, unique_for_ms, large, extras, payload
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?1, ?7, ?8, ?9, ?10, ?11, ?7, ?7, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
ON CONFLICT (id) DO NOTHING
