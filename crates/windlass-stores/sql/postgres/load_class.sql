-- load_class: the documents of a class, by key.
-- in: $1 class, $2 only keys after this, $3 limit
SELECT class, key, version, body, updated_at
FROM document
-- Not `$2 IS NULL OR key > $2`, which would walk the class from its start.
WHERE class = $1::text AND key >= coalesce($2::text, '') AND key IS DISTINCT FROM $2::text
ORDER BY key
LIMIT $3::int8
