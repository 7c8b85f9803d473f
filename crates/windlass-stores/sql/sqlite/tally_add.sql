-- add what one transaction changed in the counts of one lane.
-- in: ?1 queue, ?2 priority, then one difference per state
INSERT INTO windlass_tally (queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (queue, priority) DO UPDATE SET
  scheduled = scheduled + excluded.scheduled,
  pending = pending + excluded.pending,
  running = running + excluded.running,
  retrying = retrying + excluded.retrying,
  completed = completed + excluded.completed,
  dead_letter = dead_letter + excluded.dead_letter,
  cancelled = cancelled + excluded.cancelled,
  empty_since = NULL
