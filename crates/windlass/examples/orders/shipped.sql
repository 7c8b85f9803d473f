-- shipped: what became of the orders, as any client of the database can ask.
SELECT result #>> '{}' FROM windlass.tasks WHERE type = 'order.ship' AND state = 'completed'
