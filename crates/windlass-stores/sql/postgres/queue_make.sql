-- queue_make: makes queues that are not known yet.
-- in: $1 names
INSERT INTO queue (name) SELECT unnest($1::text[]) ON CONFLICT (name) DO NOTHING
