-- expire_workers: declares workers lost whose lease has run out. Claims under way are waited for.
-- in: $1 now
WITH overdue AS MATERIALIZED (
  SELECT number FROM worker WHERE gone_at IS NULL AND lease_until <= $1::int8 ORDER BY number FOR UPDATE
)
UPDATE worker SET gone_at = $1::int8 WHERE number = ANY (ARRAY(SELECT number FROM overdue))
