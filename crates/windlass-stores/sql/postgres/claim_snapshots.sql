-- claim_snapshots: whether some transaction has kept dead rows alive for a while.
SELECT EXISTS (
  SELECT FROM pg_stat_activity
  WHERE xact_start < clock_timestamp() - interval '2 seconds'
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND backend_type <> 'autovacuum worker'
)
OR EXISTS (SELECT FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '2 seconds')
