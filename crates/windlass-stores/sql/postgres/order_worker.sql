-- order_worker: tells a worker to run, pause or drain.
-- in: $1 id, $2 order
UPDATE worker SET run_order = $2::text WHERE id = $1::text AND gone_at IS NULL
