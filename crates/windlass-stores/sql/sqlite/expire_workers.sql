-- expire: declare lost every worker whose lease has run out.
-- in: ?1 now
UPDATE windlass_worker
SET gone_at = ?1
WHERE gone_at IS NULL
  AND lease_until <= ?1
