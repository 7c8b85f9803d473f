-- in: ?1 how many migrations were applied
UPDATE windlass_meta
SET version = ?1
