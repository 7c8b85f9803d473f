-- in: ?1 message, ?2 now
INSERT INTO windlass_broadcast (message, at) VALUES (?1, ?2)
