-- lead_renew: lets a term that has not run out last longer. It waits for a bid only, not for upkeep.
-- in: $1 the time in a test, or NULL, $2 term, $3 ms from now, $4 whether the leader knows the brokers
-- out: a row, unless the term is over, or others use brokers that the leader does not know
UPDATE leader AS l
SET until = least(t.now + $3::int8, 253402128000000)
FROM (SELECT clock($1::int8) AS now OFFSET 0) AS t
WHERE l.one = 1 AND l.term = $2::int8 AND l.holder IS NOT NULL AND l.until > t.now
  AND ($4::bool OR NOT EXISTS (SELECT FROM broker AS b WHERE b.seen_at > clock(NULL) - 60000))
RETURNING l.term
