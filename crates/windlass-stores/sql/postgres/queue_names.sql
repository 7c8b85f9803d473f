-- queue_names: the names of queues.
-- in: $1 ids        out: id, name
SELECT id, name FROM queue WHERE id = ANY ($1::int4[])
