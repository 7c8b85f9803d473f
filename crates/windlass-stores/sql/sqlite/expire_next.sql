-- out: when the next lease runs out
SELECT min(lease_until)
FROM windlass_worker
WHERE gone_at IS NULL
