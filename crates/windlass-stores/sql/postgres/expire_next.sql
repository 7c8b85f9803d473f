-- expire_next: when the next lease runs out.
SELECT min(lease_until) FROM worker WHERE gone_at IS NULL
