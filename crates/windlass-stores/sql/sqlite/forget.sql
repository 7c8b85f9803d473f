-- in: ?1 number
DELETE FROM windlass_task
WHERE number = ?1
