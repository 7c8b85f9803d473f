-- in: ?1 number
DELETE FROM task
WHERE number = ?1
