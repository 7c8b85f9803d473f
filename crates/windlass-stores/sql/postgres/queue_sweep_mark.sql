-- queue_sweep_mark: notes since when queues have no task of a priority in any state. Rows are locked in the order in
-- which `fold` locks them.
-- in: $1 now, $2 limit
WITH empty AS MATERIALIZED (
  SELECT c.queue, c.priority
  FROM counter AS c
  WHERE c.empty_since IS NULL
    AND c.scheduled = 0 AND c.pending = 0 AND c.running = 0 AND c.retrying = 0 AND c.completed = 0
    AND c.dead_letter = 0 AND c.cancelled = 0
  ORDER BY c.queue, c.priority
  LIMIT $2::int8
  FOR UPDATE
)
UPDATE counter AS c SET empty_since = $1::int8 FROM empty AS e WHERE c.queue = e.queue AND c.priority = e.priority
