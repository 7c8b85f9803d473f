-- drop_progress: forgets how far runs had come.
-- in: $1 seqs
DELETE FROM progress WHERE seq = ANY ($1::int8[])
