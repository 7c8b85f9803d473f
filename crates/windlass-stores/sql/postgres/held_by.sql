-- held_by: the leases of one worker.
-- in: $1 worker's number        out: token, claimed_at, first and last numbers of what is open
SELECT l.token, l.claimed_at, ARRAY(SELECT lower(r) FROM unnest(l.ranges) AS r),
  ARRAY(SELECT upper(r) - 1 FROM unnest(l.ranges) AS r)
FROM lease AS l
WHERE l.worker = $1::int4
ORDER BY l.token
