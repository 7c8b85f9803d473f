-- kind_names: the names of kinds.
-- in: $1 ids        out: id, name
SELECT id, name FROM kind WHERE id = ANY ($1::int4[])
