-- order_queue: tells a queue to run or pause.
-- in: $1 name, $2 is_paused
INSERT INTO queue (name, is_paused, is_ordered) VALUES ($1::text, $2::bool, true)
ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused, is_ordered = true
