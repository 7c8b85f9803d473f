-- inspect_write: writes what is there already, to see whether anything can be written.
-- in: nothing        out: nothing
UPDATE windlass_meta
SET version = version
