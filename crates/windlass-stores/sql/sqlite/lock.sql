-- lock: take the write lock without changing anything.
-- out: nothing
UPDATE windlass_meta
SET sequence = sequence
