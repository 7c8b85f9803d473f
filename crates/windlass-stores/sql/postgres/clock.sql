-- clock: the store's time.
-- in: $1 the time in a test, or NULL        out: ms since 1970
SELECT clock($1::int8)
