-- order: somebody orders something.
-- out: its number
INSERT INTO orders (item) VALUES ('a kite') RETURNING id
