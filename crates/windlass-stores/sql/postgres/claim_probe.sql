-- claim_probe: why a claim may have found nothing.
-- in: $1 worker, lanes: $2 queue name, $3 lane
-- out: whether the worker is known and not gone, whether some lane has tasks, locked by others or not
SELECT
  EXISTS (SELECT FROM worker AS w WHERE w.id = $1::text AND w.gone_at IS NULL),
  EXISTS (
    SELECT
    FROM unnest($2::text[], $3::int2[]) AS l (name, lane)
    CROSS JOIN LATERAL (SELECT x.id FROM queue AS x WHERE x.name = l.name AND NOT x.is_paused LIMIT 1) AS q
    CROSS JOIN LATERAL (
      SELECT x.lo FROM ready AS x WHERE x.queue = q.id AND x.lane = l.lane ORDER BY x.position LIMIT 1
    ) AS r
  )
