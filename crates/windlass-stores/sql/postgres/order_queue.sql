-- order_queue: has a queue run or pause. Other processes are notified with the commit: the process that gives the order
-- may end as soon as the order is answered.
-- in: $1 name, $2 is_paused, $3 channel, $4 text, or NULL to notify nobody
WITH ordered AS (
  INSERT INTO queue (name, is_paused, is_ordered) VALUES ($1::text, $2::bool, true)
  ON CONFLICT (name) DO UPDATE SET is_paused = excluded.is_paused, is_ordered = true
  RETURNING 1
)
SELECT pg_notify($3::text, $4::text) FROM ordered WHERE $4::text IS NOT NULL
