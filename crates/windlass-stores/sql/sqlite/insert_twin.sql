-- insert: what is needed to tell a repeated insert from a different task under the same id or key.
-- in: ?1 id        out: number, kind, queue, large, payload, expires_at
SELECT number, kind, queue, large, payload, expires_at
FROM windlass_task
WHERE id = ?1
