-- order: somebody orders something.
INSERT INTO orders (item) VALUES ('a kite')
