-- take: takes tasks out of the places where they stand, in the order given (sorted).
-- in: $1 seqs, $2 allowed states, a bit each, $3 retention must last beyond this
-- out: seq, and what `take` tells of each
SELECT u.seq, t.state, t.is_taken, t.at_position, t.at_since, t.at_token, t.at_worker, w.id, t.at_claimed,
  t.at_finished, t.at_retention, t.at_took
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL take(u.seq, $2::int4, $3::int8) AS t
LEFT JOIN worker AS w ON w.number = t.at_worker
