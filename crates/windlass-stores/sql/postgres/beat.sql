-- beat: registers a worker or renews everything that it holds; nothing for one that is gone.
-- in: $1 the time in a test, or NULL, $2 id, $3 card, $4 lease_ms, $5 its queues
-- out: number, run_order, now, those of its queues that are paused, whether it holds leases
INSERT INTO worker AS x (id, card, started_at, beat_at, lease_until)
SELECT $2::text, $3::text, t.now, t.now, least(t.now + $4::int8, 253402128000000)
FROM (SELECT clock($1::int8) AS now OFFSET 0) AS t
ON CONFLICT (id) DO UPDATE
  SET card = excluded.card, beat_at = excluded.beat_at, lease_until = excluded.lease_until
  WHERE x.gone_at IS NULL
RETURNING number, run_order, beat_at, ARRAY(SELECT q.name FROM queue AS q WHERE q.is_paused AND q.name = ANY ($5::text[])),
  EXISTS (SELECT FROM lease AS l WHERE l.worker = x.number)
