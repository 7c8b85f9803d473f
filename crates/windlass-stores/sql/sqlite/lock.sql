-- lock: take the write lock without changing anything.
-- out: nothing
UPDATE meta
SET sequence = sequence
