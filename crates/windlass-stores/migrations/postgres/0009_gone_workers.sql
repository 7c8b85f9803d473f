-- Rows of workers that are gone are removed when no task names them any more. This finds the oldest.
CREATE INDEX worker_gone ON worker (gone_at) WHERE gone_at IS NOT NULL;
