-- kind_find: the numbers of kinds.
-- in: $1 names        out: id, name of those that are known
SELECT id, name FROM kind WHERE name = ANY ($1::text[])
