-- Orders to queues are numbered, so that a process finds the pauses that another one has ordered since it last looked.

ALTER TABLE windlass_queue ADD COLUMN order_number INTEGER NOT NULL DEFAULT 0;   -- number of the last order

CREATE INDEX windlass_queue_paused ON windlass_queue (order_number) WHERE is_paused = 1;
