-- rewrite_begin: begins a copy of what stands in some generations.
-- in: $1 the first number of the first, $2 the number after the last
SELECT begin_rewrite($1::int8, $2::int8)
