-- drop_result: forgets what handlers returned. The bounds leave most partitions out; a join might read all of one.
-- in: $1 seqs
DELETE FROM result
WHERE seq = ANY ($1::int8[])
  AND seq >= (SELECT min(u.seq) FROM unnest($1::int8[]) AS u (seq))
  AND seq <= (SELECT max(u.seq) FROM unnest($1::int8[]) AS u (seq))
