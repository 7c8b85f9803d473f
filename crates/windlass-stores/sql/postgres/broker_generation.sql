-- broker_generation: under which generation a broker held references of all pending tasks; says that it is in use.
-- in: $1 name        out: generation, or NULL
UPDATE broker SET seen_at = clock(NULL) WHERE name = $1::text RETURNING generation
