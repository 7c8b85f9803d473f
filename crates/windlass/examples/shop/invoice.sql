-- invoice: write the invoice of an order.
-- in: ?1 order
INSERT INTO invoices (for_order)
VALUES (?1)
