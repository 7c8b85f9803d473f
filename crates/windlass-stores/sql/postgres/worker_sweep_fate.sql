-- worker_sweep_fate: which workers other tasks name that have run, a piece at a time.
-- in: $1 first seq, $2 limit        out: rows seen, last seq, workers
SELECT count(*)::int8, max(p.seq), coalesce(array_agg(DISTINCT p.worker) FILTER (WHERE p.worker IS NOT NULL), '{}')
FROM (SELECT seq, worker FROM fate WHERE seq >= $1::int8 ORDER BY seq LIMIT $2::int8) AS p
