-- term_lock: how leadership stands, unchanged until the transaction ends.
-- out: holder, until, term
SELECT holder, until, term FROM leader WHERE one = 1 FOR SHARE
