-- in: ?1 id        out: number, run_order, lease_until, gone_at
SELECT number, run_order, lease_until, gone_at
FROM windlass_worker
WHERE id = ?1
