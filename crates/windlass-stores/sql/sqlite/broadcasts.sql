-- subscribe: the messages that follow.
-- in: ?1 after this number, ?2 limit        out: number, message
SELECT number, message
FROM windlass_broadcast
WHERE number > ?1
ORDER BY number
LIMIT ?2
