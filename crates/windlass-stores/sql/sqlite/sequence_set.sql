-- in: ?1 the last number given
UPDATE windlass_meta
SET sequence = ?1
