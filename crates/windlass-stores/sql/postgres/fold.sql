-- fold: adds up the counts.
WITH d AS (DELETE FROM delta RETURNING *)
INSERT INTO counter AS c (
  queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled
)
SELECT queue, priority, sum(scheduled), sum(pending), sum(running), sum(retrying), sum(completed),
  sum(dead_letter), sum(cancelled)
FROM d
GROUP BY 1, 2
ORDER BY 1, 2
ON CONFLICT (queue, priority) DO UPDATE SET
  scheduled = c.scheduled + excluded.scheduled, pending = c.pending + excluded.pending,
  running = c.running + excluded.running, retrying = c.retrying + excluded.retrying,
  completed = c.completed + excluded.completed, dead_letter = c.dead_letter + excluded.dead_letter,
  cancelled = c.cancelled + excluded.cancelled, empty_since = NULL
