-- take a key that is free: nobody has it, or its time is over.
-- in: ?1 digest, ?2 holder, ?3 until
INSERT INTO windlass_unique_key (digest, holder, until)
VALUES (?1, ?2, ?3)
ON CONFLICT (digest) DO UPDATE SET holder = excluded.holder, until = excluded.until
