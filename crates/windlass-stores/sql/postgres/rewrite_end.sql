-- rewrite_end: puts the copy in the place of what it was made of.
-- in: $1 changes at most that may be left        out: whether it is there
SELECT end_rewrite($1::int8)
