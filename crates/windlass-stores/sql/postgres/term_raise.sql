-- term_raise: how leadership stands, while no upkeep of any term is under way elsewhere.
-- out: holder, until, term
SELECT holder, until, term FROM leader WHERE one = 1 FOR UPDATE
