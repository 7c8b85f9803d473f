-- order: run or pause a queue.
-- in: ?1 queue, ?2 is_paused
INSERT INTO windlass_queue (name, is_paused)
VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused
