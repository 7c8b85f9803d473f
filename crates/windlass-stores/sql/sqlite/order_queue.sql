-- order: run or pause a queue.
-- in: ?1 queue, ?2 is_paused, ?3 the order's number
INSERT INTO windlass_queue (name, is_paused, ordered)
VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused, ordered = excluded.ordered
