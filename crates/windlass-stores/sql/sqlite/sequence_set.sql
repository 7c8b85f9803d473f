-- in: ?1 the last number given
UPDATE meta
SET sequence = ?1
