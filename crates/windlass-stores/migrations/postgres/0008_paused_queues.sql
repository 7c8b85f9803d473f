-- Heartbeats read which of a worker's queues are paused, among any number of queues.

CREATE INDEX queue_paused ON queue (name) WHERE is_paused;
