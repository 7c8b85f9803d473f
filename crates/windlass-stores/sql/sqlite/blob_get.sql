-- in: ?1 key        out: data
SELECT data
FROM windlass_blob
WHERE key = ?1
