-- ping: the store's time, and whether it can be written to.
-- in: $1 the time in a test, or NULL        out: ms since 1970, is read-only, version
SELECT clock($1::int8), current_setting('transaction_read_only') = 'on', current_setting('server_version')
