-- prune_fates: cancelled tasks whose retention is over.
-- in: $1 now, $2 limit        out: seq
SELECT seq FROM fate WHERE expires_at <= $1::int8 ORDER BY expires_at LIMIT $2::int8 FOR UPDATE SKIP LOCKED
