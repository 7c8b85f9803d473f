-- process: the process of the server that answers. Leaves nothing behind: it may be another's.
SELECT pg_catalog.pg_backend_pid()
