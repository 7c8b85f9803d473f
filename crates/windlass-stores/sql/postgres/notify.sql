-- notify: tells other processes.
-- in: $1 channel, $2 text
SELECT pg_notify($1::text, $2::text)
