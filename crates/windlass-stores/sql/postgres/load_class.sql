-- load_class: the documents of a class, by key.
-- in: $1 class, $2 only keys after this, $3 limit
SELECT class, key, version, body, updated_at
FROM document
WHERE class = $1::text AND ($2::text IS NULL OR key > $2::text)
ORDER BY key
LIMIT $3::int8
