-- load_one: a document.
-- in: $1 class, $2 key
SELECT class, key, version, body, updated_at FROM document WHERE class = $1::text AND key = $2::text
