-- inspect_holders: who keeps dead rows from being cleared away, the longest first: transactions of this database, transactions
-- that were prepared and left, and replication slots. Of others' transactions a role without pg_read_all_stats sees neither
-- beginning nor statement; that they are open is seen by the lock that each holds on its own number.
-- out: sort, who, age in s (NULL where none is shown), for how many transactions, what it does (NULL where that is not shown),
--      the number of the transaction, whether it is windlass's own
SELECT h.sort, h.who, h.age_s::int8, h.behind::int8, h.doing, h.number, h.is_ours
FROM (
  SELECT 'transaction' AS sort,
    format('pid %s, user %s, application %s, from %s', a.pid, coalesce(a.usename, '?'),
      coalesce(nullif(a.application_name, ''), '?'),
      CASE WHEN a.backend_start IS NULL THEN '?' ELSE coalesce(a.client_addr::text, 'a local socket') END) AS who,
    extract(epoch FROM clock_timestamp() - a.xact_start) AS age_s,
    greatest(age(a.backend_xmin), age(a.backend_xid)) AS behind,
    a.state || ': ' || coalesce(left(regexp_replace(a.query, '\s+', ' ', 'g'), 200), '?') AS doing,
    l.virtualxid AS number, a.application_name IN ('windlass', current_setting('application_name')) AS is_ours
  FROM pg_stat_activity AS a
  JOIN pg_locks AS l ON l.pid = a.pid AND l.locktype = 'virtualxid' AND l.virtualxid = l.virtualtransaction AND l.granted
  -- Who cleans up by himself is nobody's user.
  WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND a.usesysid IS NOT NULL
    AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL OR a.state IS NULL OR a.state LIKE 'idle in%')
  UNION ALL
  SELECT 'prepared transaction', format('%s, owner %s', quote_literal(p.gid), p.owner),
    extract(epoch FROM clock_timestamp() - p.prepared), age(p.transaction), 'waits for COMMIT PREPARED or ROLLBACK PREPARED',
    NULL, false
  FROM pg_prepared_xacts AS p
  WHERE p.database = current_database()
  UNION ALL
  SELECT 'replication slot', format('%s (%s)', s.slot_name, CASE WHEN s.active THEN 'pid ' || s.active_pid ELSE 'nobody reads it' END),
    NULL, greatest(age(s.xmin), age(s.catalog_xmin)), 'keeps rows for a replica', NULL, false
  FROM pg_replication_slots AS s
  WHERE s.xmin IS NOT NULL
) AS h
ORDER BY h.age_s DESC NULLS LAST, h.behind DESC NULLS LAST
