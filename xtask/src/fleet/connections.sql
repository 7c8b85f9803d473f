-- connections: how many connections processes of windlass have.
SELECT count(*)::float8 FROM pg_stat_activity WHERE application_name = 'windlass'
