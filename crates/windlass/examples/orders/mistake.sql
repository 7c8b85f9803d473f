-- mistake: somebody orders something and thinks better of it.
BEGIN;
INSERT INTO orders (item) VALUES ('a boat');
ROLLBACK
