-- count: how many orders and invoices there are.
-- out: orders, invoices
SELECT
  (SELECT count(*) FROM orders),
  (SELECT count(*) FROM invoices)
