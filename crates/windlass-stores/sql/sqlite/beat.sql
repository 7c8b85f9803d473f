-- beat: register a worker, or renew all that it holds. The caller has checked that it is not gone.
-- in: ?1 id, ?2 card, ?3 now, ?4 lease_until        out: number, run_order
INSERT INTO windlass_worker (id, card, run_order, started_at, beat_at, lease_until)
VALUES (?1, ?2, 'run', ?3, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET card = excluded.card, beat_at = excluded.beat_at, lease_until = excluded.lease_until
RETURNING number, run_order
