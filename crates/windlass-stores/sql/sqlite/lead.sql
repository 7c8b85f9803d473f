-- out: holder, until, term
SELECT holder, until, term
FROM leader
