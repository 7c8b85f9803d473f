-- held_cancels: runs of a worker for which a cancel was requested.
-- in: $1 worker's number        out: seq, stamp, epoch
SELECT f.seq, t.stamp, coalesce(l.epoch, l.token)
FROM fate AS f
JOIN lease AS l ON l.worker = $1::int4 AND l.ranges @> f.seq
CROSS JOIN LATERAL (SELECT x.stamp FROM task AS x WHERE x.seq = f.seq LIMIT 1) AS t
WHERE f.cancel
