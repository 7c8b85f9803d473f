-- list: the number at which a window of so many tasks ends.
-- in: ?1 only numbers below, ?2 how many tasks        out: number
SELECT number
FROM windlass_task
WHERE number < ?1
ORDER BY number DESC
LIMIT 1 OFFSET ?2
