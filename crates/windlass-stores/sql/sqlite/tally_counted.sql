-- what the counts should be, by counting; only for inspection and repair.
SELECT queue, priority,
  sum(state = 0), sum(state = 1), sum(state = 2), sum(state = 3), sum(state = 4), sum(state = 5), sum(state = 6)
FROM windlass_task
GROUP BY queue, priority
ORDER BY queue, priority
