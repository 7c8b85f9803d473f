-- inspect_holders: who keeps dead rows from being cleared away, the longest first: transactions of this database, transactions
-- that were prepared and left, and replication slots.
-- out: sort, who, age in s, for how many transactions, what it does
SELECT h.sort, h.who, h.age_s::int8, h.behind::int8, h.doing
FROM (
  SELECT 'transaction' AS sort,
    format('pid %s, user %s, application %s, from %s', a.pid, coalesce(a.usename, '?'),
      coalesce(nullif(a.application_name, ''), '?'), coalesce(a.client_addr::text, 'a local socket')) AS who,
    extract(epoch FROM clock_timestamp() - a.xact_start) AS age_s,
    greatest(age(a.backend_xmin), age(a.backend_xid)) AS behind,
    coalesce(a.state, '?') || ': ' || coalesce(left(regexp_replace(a.query, '\s+', ' ', 'g'), 200), '?') AS doing
  FROM pg_stat_activity AS a
  WHERE a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid() AND a.datname = current_database()
    AND a.backend_type <> 'autovacuum worker' AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL OR a.state LIKE 'idle in%')
  UNION ALL
  SELECT 'prepared transaction', format('%s, owner %s', quote_literal(p.gid), p.owner),
    extract(epoch FROM clock_timestamp() - p.prepared), age(p.transaction), 'waits for COMMIT PREPARED or ROLLBACK PREPARED'
  FROM pg_prepared_xacts AS p
  WHERE p.database = current_database()
  UNION ALL
  SELECT 'replication slot', format('%s (%s)', s.slot_name, CASE WHEN s.active THEN 'pid ' || s.active_pid ELSE 'nobody reads it' END),
    NULL, greatest(age(s.xmin), age(s.catalog_xmin)), 'keeps rows for a replica'
  FROM pg_replication_slots AS s
  WHERE s.xmin IS NOT NULL
) AS h
ORDER BY h.age_s DESC NULLS FIRST
LIMIT 5
