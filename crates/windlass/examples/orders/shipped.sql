-- shipped: what became of an order, as any client of the database can ask.
-- in: $1 its number        out: what the task came to, once it is completed
SELECT result #>> '{}' FROM windlass.tasks
WHERE type = 'order.ship' AND state = 'completed' AND payload ->> 'id' = $1::int::text
