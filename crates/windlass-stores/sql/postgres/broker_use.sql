-- broker_use: has the outbox filled for these brokers, and says that they are in use.
-- in: $1 names
SELECT use_brokers($1::text[])
