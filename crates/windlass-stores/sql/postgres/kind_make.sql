-- kind_make: makes kinds that are not known yet.
-- in: $1 names
INSERT INTO kind (name) SELECT unnest($1::text[]) ON CONFLICT (name) DO NOTHING
