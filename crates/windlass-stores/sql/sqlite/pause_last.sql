-- pause_last: the number of the last order among queues that are paused.
-- out: the number, 0 when none is paused
SELECT coalesce(max(order_number), 0)
FROM windlass_queue
WHERE is_paused = 1
