-- ready_there: which references lead to rows that are there.
-- in: $1 queue name, $2 lane, $3 position, $4 lo        out: number of the reference, whether its queue is paused
SELECT u.ord, q.is_paused
FROM unnest($1::text[], $2::int2[], $3::int8[], $4::int8[]) WITH ORDINALITY AS u (name, lane, position, lo, ord)
CROSS JOIN LATERAL (SELECT x.id, x.is_paused FROM queue AS x WHERE x.name = u.name LIMIT 1) AS q
CROSS JOIN LATERAL (
  SELECT x.lo FROM ready AS x
  WHERE x.queue = q.id AND x.lane = u.lane AND x.position = u.position AND x.lo = u.lo
  LIMIT 1
) AS r
