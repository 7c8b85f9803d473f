-- change_lock: lets one change by filter work at a time, until its transaction ends. Several would take the same tasks,
-- in different orders, and the server would end one of each two.
SELECT pg_advisory_xact_lock('fate'::regclass::int8)
