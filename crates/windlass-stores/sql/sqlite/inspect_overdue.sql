-- in: ?1 now        out: how many workers are silent longer than their lease, and not declared lost yet
SELECT count(*)
FROM windlass_worker
WHERE gone_at IS NULL
  AND lease_until <= ?1
