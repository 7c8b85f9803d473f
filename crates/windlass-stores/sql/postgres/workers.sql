-- workers: every worker that lives, or went after $1, by id.
SELECT w.id, w.card, w.run_order, w.started_at, w.beat_at, w.lease_until, w.gone_at IS NOT NULL,
  coalesce((
    SELECT sum(upper(r) - lower(r)) FROM lease AS l CROSS JOIN LATERAL unnest(l.ranges) AS r WHERE l.worker = w.number
  ), 0)::int8
FROM worker AS w
WHERE w.gone_at IS NULL OR w.gone_at >= $1::int8
ORDER BY w.id COLLATE "C"
