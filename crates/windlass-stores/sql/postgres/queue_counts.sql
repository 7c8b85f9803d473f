-- queue_counts: how many tasks are in each state of each queue, as kept. Names are looked up by the caller: a plan that was
-- made while the tables were empty joins them row by row, 2 s for 5,000 queues.
-- out: queue id, priority, a count for each state
SELECT c.queue, c.priority, sum(c.scheduled)::int8, sum(c.pending)::int8, sum(c.running)::int8, sum(c.retrying)::int8,
  sum(c.completed)::int8, sum(c.dead_letter)::int8, sum(c.cancelled)::int8
FROM (
  SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled FROM counter
  UNION ALL
  SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled FROM delta
) AS c
GROUP BY 1, 2
