-- out: when the next retention is over
SELECT min(expires_at)
FROM windlass_task
WHERE expires_at IS NOT NULL
