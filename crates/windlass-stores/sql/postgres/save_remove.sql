-- save_remove: removes a document.
-- in: $1 class, $2 key
DELETE FROM document WHERE class = $1::text AND key = $2::text
