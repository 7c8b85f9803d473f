-- in: ?1 key (2 × number for a payload, + 1 for a result), ?2 data
INSERT INTO windlass_blob (key, data)
VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET data = excluded.data
