-- in: ?1 key        out: data
SELECT data
FROM blob
WHERE key = ?1
