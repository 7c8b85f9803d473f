-- in: ?1 number        out: id
SELECT id
FROM windlass_worker
WHERE number = ?1
