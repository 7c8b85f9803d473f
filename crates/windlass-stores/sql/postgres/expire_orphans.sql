-- expire_orphans: the leases of workers that are gone.
-- in: $1 limit        out: token, first and last numbers of what is open
SELECT l.token, ARRAY(SELECT lower(r) FROM unnest(l.ranges) AS r), ARRAY(SELECT upper(r) - 1 FROM unnest(l.ranges) AS r)
FROM lease AS l
JOIN worker AS w ON w.number = l.worker
WHERE w.gone_at IS NOT NULL
ORDER BY l.token
LIMIT $1::int8
