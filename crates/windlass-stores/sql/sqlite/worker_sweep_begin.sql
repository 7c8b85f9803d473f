-- tend: workers that have been gone since before an instant.
-- in: ?1 the instant, ?2 limit        out: number
SELECT number
FROM windlass_worker
WHERE gone_at < ?1
ORDER BY gone_at
LIMIT ?2
