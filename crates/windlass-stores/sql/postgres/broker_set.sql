-- broker_set: notes that a broker holds references of all pending tasks, or that it may not.
-- in: $1 name, $2 generation, or NULL
UPDATE broker SET generation = $2::text WHERE name = $1::text AND generation IS DISTINCT FROM $2::text
