-- out: the counts of every lane
SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled
FROM windlass_tally
ORDER BY queue, priority
