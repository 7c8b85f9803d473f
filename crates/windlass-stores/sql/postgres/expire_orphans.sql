-- expire_orphans: the leases of workers that are gone, but for those that someone's open transaction is about to
-- complete: nobody may wait for that here.
-- in: $1 limit        out: token, first and last numbers of what is open
SELECT l.token, ARRAY(SELECT lower(r) FROM unnest(l.ranges) AS r), ARRAY(SELECT upper(r) - 1 FROM unnest(l.ranges) AS r)
FROM lease AS l
JOIN worker AS w ON w.number = l.worker
WHERE w.gone_at IS NOT NULL
  AND (l.epoch IS NULL OR EXISTS (SELECT FROM lease AS x WHERE x.token = l.token FOR UPDATE SKIP LOCKED))
ORDER BY l.token
LIMIT $1::int8
