-- promote_due: tasks whose time has come, the longest due first.
-- in: $1 now, $2 limit        out: seq, queue name and stamp, or NULL where they are not known
SELECT d.seq, q.name, t.stamp
FROM (SELECT x.seq, x.run_at, x.queue FROM deferred AS x WHERE x.run_at <= $1::int8 ORDER BY x.run_at, x.seq LIMIT $2::int8) AS d
LEFT JOIN queue AS q ON q.id = d.queue
LEFT JOIN LATERAL (SELECT x.stamp FROM task AS x WHERE x.seq = d.seq LIMIT 1) AS t ON true
ORDER BY d.run_at, d.seq
