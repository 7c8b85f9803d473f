-- wait_probe: whether work is there.
-- in: $1 queue names
SELECT EXISTS (
  SELECT
  FROM unnest($1::text[]) AS l (name)
  CROSS JOIN LATERAL (SELECT x.id FROM queue AS x WHERE x.name = l.name AND NOT x.is_paused LIMIT 1) AS q
  CROSS JOIN LATERAL (SELECT x.lo FROM ready AS x WHERE x.queue = q.id LIMIT 1) AS r
)
