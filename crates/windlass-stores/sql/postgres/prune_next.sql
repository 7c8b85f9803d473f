-- prune_next: when the next retention is over.
SELECT least(
  (SELECT expires_at FROM fate WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1),
  (SELECT expires_at FROM done ORDER BY expires_at LIMIT 1)
)
