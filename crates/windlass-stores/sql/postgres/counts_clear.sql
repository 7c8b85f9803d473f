-- counts_clear: forgets the kept counts, and keeps other statements from adding to them meanwhile.
WITH a AS (DELETE FROM delta), b AS (UPDATE counter SET
  scheduled = 0, pending = 0, running = 0, retrying = 0, completed = 0, dead_letter = 0, cancelled = 0)
SELECT 1
