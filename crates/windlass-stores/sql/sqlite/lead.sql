-- out: holder, until, term
SELECT holder, until, term
FROM windlass_leader
