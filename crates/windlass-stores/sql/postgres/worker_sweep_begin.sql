-- worker_sweep_begin: workers that have been gone since before an instant.
-- in: $1 the instant, $2 limit        out: number
SELECT number
FROM worker
WHERE gone_at < $1::int8
ORDER BY gone_at
LIMIT $2::int8
