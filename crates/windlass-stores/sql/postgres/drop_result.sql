-- drop_result: forgets what handlers returned.
-- in: $1 seqs
DELETE FROM result WHERE seq = ANY ($1::int8[])
