-- lead_set: who leads, until when, in which term.
-- in: $1 holder, $2 until, $3 term
UPDATE leader SET holder = $1::text, until = $2::int8, term = $3::int8 WHERE one = 1
