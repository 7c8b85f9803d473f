-- pauses: queues that were paused after an order, and still are.
-- in: ?1 the order's number        out: name and number of each, the first order first
SELECT name, order_number
FROM windlass_queue
WHERE is_paused = 1
  AND order_number > ?1
ORDER BY order_number
