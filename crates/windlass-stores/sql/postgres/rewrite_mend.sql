-- rewrite_mend: brings changes into the copy.
-- in: $1 how many at most        out: whether that was all
SELECT mend_copy($1::int8)
