-- drop_result: forgets what handlers returned.
-- in: $1 seqs
DELETE FROM result AS x USING unnest($1::int8[]) AS u (seq) WHERE x.seq = u.seq
