-- queues_paused: which queues are paused.
-- out: number, whether it is
SELECT q.id, q.is_paused FROM queue AS q
