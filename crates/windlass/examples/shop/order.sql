-- order: take an order.
-- in: ?1 item
INSERT INTO orders (item)
VALUES (?1)
