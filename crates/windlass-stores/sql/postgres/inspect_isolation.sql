-- inspect_isolation: the isolation level of transactions: what the server, the database or the role has as the default,
-- and what this session has.
-- out: default_transaction_isolation before it was set here, transaction_isolation
SELECT s.reset_val, current_setting('transaction_isolation') FROM pg_settings AS s WHERE s.name = 'default_transaction_isolation'
