-- calls: how often each statement has run since the server started.
-- out: text, count
SELECT query, calls::float8 FROM pg_stat_statements
