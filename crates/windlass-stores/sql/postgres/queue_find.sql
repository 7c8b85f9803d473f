-- queue_find: the numbers of queues.
-- in: $1 names        out: id, name of those that are known
SELECT id, name FROM queue WHERE name = ANY ($1::text[])
