-- change_top: a number below $1 above which, up to $1, no task stands in one of these states.
-- in: $1 below this number, $2 states, a bit each        out: the number; NULL when none stands there
SELECT greatest(
  CASE WHEN $2::int4 & 2 <> 0 THEN
    (SELECT least(x.hi, $1::int8 - 1) FROM ready AS x WHERE x.lo < $1 ORDER BY x.lo DESC LIMIT 1)
  END,
  CASE WHEN $2 & 4 <> 0 THEN
    (SELECT max(least(upper(r), $1) - 1) FROM lease AS l CROSS JOIN LATERAL unnest(l.ranges) AS r WHERE lower(r) < $1)
  END,
  CASE WHEN $2 & 9 <> 0 THEN (SELECT x.seq FROM deferred AS x WHERE x.seq < $1 ORDER BY x.seq DESC LIMIT 1) END,
  CASE WHEN $2 & 32 <> 0 THEN
    (SELECT x.seq FROM fate AS x WHERE x.state = 5 AND x.seq < $1 ORDER BY x.seq DESC LIMIT 1)
  END,
  CASE WHEN $2 & 64 <> 0 THEN
    (SELECT x.seq FROM fate AS x WHERE x.state = 6 AND x.seq < $1 ORDER BY x.seq DESC LIMIT 1)
  END,
  CASE WHEN $2 & 16 <> 0 THEN
    (
      SELECT least(x.block * 1024 + 1023, $1 - 1) FROM done AS x
      WHERE x.block <= ($1 - 1) >> 10 ORDER BY x.block DESC LIMIT 1
    )
  END
)
