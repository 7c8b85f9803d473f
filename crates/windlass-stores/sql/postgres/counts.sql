-- counts: how many tasks are in each state, as kept.
-- out: queue name, priority, a count for each state
SELECT q.name, c.priority, sum(c.scheduled)::int8, sum(c.pending)::int8, sum(c.running)::int8, sum(c.retrying)::int8,
  sum(c.completed)::int8, sum(c.dead_letter)::int8, sum(c.cancelled)::int8
FROM (
  SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled FROM counter
  UNION ALL
  SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled FROM delta
) AS c
JOIN queue AS q ON q.id = c.queue
GROUP BY 1, 2
