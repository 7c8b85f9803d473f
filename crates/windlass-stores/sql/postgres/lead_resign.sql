-- lead_resign: ends a term that has not run out.
-- in: $1 the time in a test, or NULL, $2 term        out: a row, unless the term is over
UPDATE leader SET holder = NULL, until = 0
WHERE one = 1 AND term = $2::int8 AND holder IS NOT NULL AND until > clock($1::int8)
RETURNING term
