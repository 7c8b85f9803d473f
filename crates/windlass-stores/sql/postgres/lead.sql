-- lead: how leadership stands, to be changed.
-- out: holder, until, term
SELECT holder, until, term FROM leader WHERE one = 1 FOR UPDATE
