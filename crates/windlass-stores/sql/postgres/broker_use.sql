-- broker_use: has the outbox filled for these brokers.
-- in: $1 names
SELECT use_brokers($1::text[])
