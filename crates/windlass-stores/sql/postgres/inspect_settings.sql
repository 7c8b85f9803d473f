-- inspect_settings: what the server and the database set.
-- in: $1 names        out: name, value
SELECT s.name, s.setting FROM pg_settings AS s WHERE s.name = ANY ($1::text[])
