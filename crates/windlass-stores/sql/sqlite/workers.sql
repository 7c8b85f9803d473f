-- workers: those that live, and those gone for at most an hour.
-- in: ?1 the instant an hour ago        out: the columns of `WorkerRecord`
SELECT w.id, w.card, w.run_order, w.started_at, w.beat_at, w.lease_until, w.gone_at,
  (SELECT count(*) FROM windlass_task AS t WHERE t.state = 2 AND t.worker = w.number)
FROM windlass_worker AS w
WHERE w.gone_at IS NULL
   OR w.gone_at >= ?1
ORDER BY w.id
