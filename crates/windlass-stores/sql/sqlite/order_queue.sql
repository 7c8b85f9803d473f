-- order: run or pause a queue.
-- in: ?1 queue, ?2 is_paused, ?3 the order's number
INSERT INTO windlass_queue (name, is_paused, order_number)
VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused, order_number = excluded.order_number
