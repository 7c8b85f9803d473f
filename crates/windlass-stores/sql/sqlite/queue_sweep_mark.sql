-- tend: note since when lanes have no task in any state.
-- in: ?1 now, ?2 limit
UPDATE windlass_tally
SET empty_since = ?1
WHERE (queue, priority) IN (
  SELECT queue, priority
  FROM windlass_tally
  WHERE empty_since IS NULL
    AND scheduled = 0 AND pending = 0 AND running = 0 AND retrying = 0 AND completed = 0 AND dead_letter = 0
    AND cancelled = 0
  LIMIT ?2
)
