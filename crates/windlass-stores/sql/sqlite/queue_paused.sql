-- in: ?1 queue        out: whether it is paused; no row for a queue nobody ever gave an order
SELECT is_paused
FROM windlass_queue
WHERE name = ?1
