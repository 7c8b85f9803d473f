-- held_by: the leases of one worker.
-- in: $1 worker's number        out: token, claimed_at, first and last numbers of what is open, epoch, whether an open
--     transaction is about to complete it
SELECT l.token, l.claimed_at, ARRAY(SELECT lower(r) FROM unnest(l.ranges) AS r),
  ARRAY(SELECT upper(r) - 1 FROM unnest(l.ranges) AS r), coalesce(l.epoch, l.token),
  l.epoch IS NOT NULL
    AND NOT EXISTS (SELECT FROM lease AS x WHERE x.token = l.token FOR UPDATE SKIP LOCKED)
FROM lease AS l
WHERE l.worker = $1::int4
ORDER BY l.token
