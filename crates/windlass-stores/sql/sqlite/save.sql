-- in: ?1 class, ?2 key, ?3 version, ?4 body, ?5 now
INSERT INTO windlass_document (class, key, version, body, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (class, key) DO UPDATE SET version = excluded.version, body = excluded.body, updated_at = excluded.updated_at
