-- stamps: what makes ids of numbers.
-- in: $1 seqs        out: seq, stamp
SELECT t.seq, t.stamp FROM unnest($1::int8[]) AS u (seq) JOIN task AS t ON t.seq = u.seq
