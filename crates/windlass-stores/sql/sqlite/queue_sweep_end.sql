-- tend: forget lanes that have been without tasks since before an instant. A queue without a lane is listed only if it
-- was given an order.
-- in: ?1 the instant, ?2 limit
DELETE FROM windlass_tally
WHERE (queue, priority) IN (
  SELECT queue, priority
  FROM windlass_tally
  WHERE empty_since < ?1
    AND scheduled = 0 AND pending = 0 AND running = 0 AND retrying = 0 AND completed = 0 AND dead_letter = 0
    AND cancelled = 0
  LIMIT ?2
)
