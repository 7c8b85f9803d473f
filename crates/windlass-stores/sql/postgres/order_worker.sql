-- order_worker: has a worker run, pause or drain. Other processes are notified with the commit.
-- in: $1 id, $2 order, $3 channel, $4 text, or NULL to notify nobody        out: a row, none when it is unknown or gone
WITH ordered AS (
  UPDATE worker SET run_order = $2::text WHERE id = $1::text AND gone_at IS NULL RETURNING 1
)
SELECT CASE WHEN $4::text IS NOT NULL THEN pg_notify($3::text, $4::text) END FROM ordered
