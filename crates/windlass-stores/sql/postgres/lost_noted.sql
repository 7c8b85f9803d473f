-- lost_noted: has tasks that stand in a place again copied with their generation, if a copy of it is being made.
-- in: $1 seqs
INSERT INTO rewrite_change (seq)
SELECT u.seq FROM unnest($1::int8[]) AS u (seq) JOIN rewrite AS r ON u.seq >= r.lo AND u.seq < r.hi
