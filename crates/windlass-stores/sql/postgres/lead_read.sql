-- lead_read: how leadership stands, read without a lock.
-- in: $1 the time in a test, or NULL        out: holder, until, term, now
SELECT holder, until, term, clock($1::int8) FROM leader WHERE one = 1
