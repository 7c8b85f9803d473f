-- reserve: a block of numbers in a row.
-- in: $1 how many        out: the first
SELECT reserve($1::int8)
