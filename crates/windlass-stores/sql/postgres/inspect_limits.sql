-- inspect_limits: for what a doctor asks, until the transaction ends. He reads whole tables, so no join may be a nested loop:
-- after a restore the server knows no sizes, and one that it takes for cheap is quadratic. Nobody's question goes on for
-- ever, or after its asker is gone.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL enable_mergejoin = on;
SET LOCAL enable_nestloop = off;
SET LOCAL statement_timeout = '300s';
SET LOCAL client_connection_check_interval = '2s'
