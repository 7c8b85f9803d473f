-- in: ?1 number        out: id
SELECT id
FROM worker
WHERE number = ?1
