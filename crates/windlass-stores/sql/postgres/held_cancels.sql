-- held_cancels: runs of a worker for which a cancel was requested.
-- in: $1 worker's number        out: seq, stamp, epoch
SELECT f.seq, t.stamp, coalesce(l.epoch, l.token)
FROM fate AS f
JOIN lease AS l ON l.worker = $1::int4 AND l.ranges @> f.seq
JOIN task AS t ON t.seq = f.seq
WHERE f.cancel
