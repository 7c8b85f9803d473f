-- tend_owner: whether this role may vacuum the tables of the schema.
SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = 'ready'::regclass
