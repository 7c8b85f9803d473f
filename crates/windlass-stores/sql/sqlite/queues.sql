-- out: the queues that were ever given an order
SELECT name, is_paused
FROM windlass_queue
