-- broker_fresh: whether somebody has said within the last 30 s that these brokers, and no others, are in use.
-- in: $1 names
SELECT count(*) = cardinality($1::text[])
  AND coalesce(bool_and(b.name = ANY ($1::text[]) AND b.seen_at > clock(NULL) - 30000), false)
FROM broker AS b
