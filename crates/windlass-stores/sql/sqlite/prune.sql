-- prune: records whose retention is over, the longest over first.
-- in: ?1 now, ?2 limit        out: number
SELECT number
FROM windlass_task
WHERE expires_at <= ?1
ORDER BY expires_at
LIMIT ?2
