-- rewrite_copy: copies a stretch.
-- in: $1 how many numbers at most        out: whether there is more
SELECT copy_standing($1::int8)
