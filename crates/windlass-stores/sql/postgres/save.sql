-- save: writes a document.
-- in: $1 class, $2 key, $3 version, $4 body, $5 now
INSERT INTO document (class, key, version, body, updated_at) VALUES ($1::text, $2::text, $3::int8, $4::text, $5::int8)
ON CONFLICT (class, key) DO UPDATE SET version = excluded.version, body = excluded.body, updated_at = excluded.updated_at
