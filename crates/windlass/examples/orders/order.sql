-- order: somebody orders something, and somebody else thinks better of it.
INSERT INTO orders (item) VALUES ('a kite');
BEGIN;
INSERT INTO orders (item) VALUES ('a boat');
ROLLBACK
