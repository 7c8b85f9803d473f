-- queue_sweep_end: forgets counts that have been zero since before an instant. A queue without counts is listed only if
-- it was given an order. `fold` makes the row again: what was counted meanwhile is in `delta`.
-- in: $1 the instant, $2 limit
WITH idle AS MATERIALIZED (
  SELECT c.queue, c.priority
  FROM counter AS c
  WHERE c.empty_since < $1::int8
    AND c.scheduled = 0 AND c.pending = 0 AND c.running = 0 AND c.retrying = 0 AND c.completed = 0
    AND c.dead_letter = 0 AND c.cancelled = 0
    AND NOT EXISTS (SELECT FROM delta AS d WHERE d.queue = c.queue)
  ORDER BY c.queue, c.priority
  LIMIT $2::int8
  FOR UPDATE
)
DELETE FROM counter AS c USING idle AS i WHERE c.queue = i.queue AND c.priority = i.priority
