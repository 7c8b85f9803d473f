-- worker_sweep_done: which workers completed tasks name, a piece at a time. The limit must exceed the 1,024 rows that
-- one block can have: the next piece begins with the last block of this one.
-- in: $1 first block, $2 limit        out: rows seen, last block, workers
SELECT count(*)::int8, max(p.block), coalesce(array_agg(DISTINCT p.worker), '{}')
FROM (SELECT block, worker FROM done WHERE block >= $1::int8 ORDER BY block LIMIT $2::int8) AS p
