-- finish: records successes, all or none of each claim, in the order of tokens.
-- in: $1 the time in a test, or NULL
--     claims, sorted: $2 token, $3 finished numbers as a multirange
--     rows to keep: $4 token, $5 block, $6 first and $7 last of its slice, $8 retention_ms
--     sliced by them: $9 offsets, $10 took
--     counts: $11 token, $12 queue, $13 priority, $14 how many
--     results: $15 token, $16 seq, $17 output
--     tasks of odd tokens, which may hold keys: $18 token, $19 seq
--     $20 whether the commit need not wait for the disk, since one that does will follow
-- out: of each claim that was refused: token, the numbers among the finished that are still open
WITH
time AS MATERIALIZED (
  SELECT clock($1::int8) AS now, CASE WHEN $20::bool THEN set_config('synchronous_commit', 'off', true) END AS commit
),
held AS MATERIALIZED (
  SELECT l.token, l.worker, l.claimed_at, l.ranges, g.fin, l.ranges @> g.fin AS ok
  FROM unnest($2::int8[], $3::text[]::int8multirange[]) AS g (token, fin)
  CROSS JOIN LATERAL (SELECT x.* FROM lease AS x WHERE x.token = g.token FOR UPDATE) AS l
),
gone AS (
  DELETE FROM lease AS x WHERE x.token = ANY (ARRAY(SELECT token FROM held WHERE ok AND ranges <@ fin))
),
cut AS (
  UPDATE lease AS x SET ranges = x.ranges - (SELECT h.fin FROM held AS h WHERE h.token = x.token)
  WHERE x.token = ANY (ARRAY(SELECT token FROM held WHERE ok AND NOT ranges <@ fin))
),
kept AS (
  INSERT INTO done (block, token, claimed_at, finished_at, retention_ms, expires_at, worker, offsets, took)
  SELECT g.block, h.token, h.claimed_at, t.now, g.retention_ms, least(t.now + g.retention_ms, 253402128000000), h.worker,
    ($9::int2[])[g.first : g.last], ($10::int4[])[g.first : g.last]
  FROM unnest($4::int8[], $5::int8[], $6::int4[], $7::int4[], $8::int8[]) AS g (token, block, first, last, retention_ms)
  JOIN held AS h ON h.token = g.token AND h.ok
  CROSS JOIN time AS t
),
counted AS (
  INSERT INTO delta (queue, priority, running, completed)
  SELECT c.queue, c.priority, -sum(c.count), sum(c.count)
  FROM unnest($11::int8[], $12::int4[], $13::int2[], $14::int4[]) AS c (token, queue, priority, count)
  JOIN held AS h ON h.token = c.token AND h.ok
  GROUP BY 1, 2
),
told AS (
  INSERT INTO result (seq, output)
  SELECT r.seq, r.output
  FROM unnest($15::int8[], $16::int8[], $17::bytea[]) AS r (token, seq, output)
  JOIN held AS h ON h.token = r.token AND h.ok
  ON CONFLICT (seq) DO UPDATE SET output = excluded.output
),
freed AS (
  DELETE FROM uniq AS x
  USING (
    SELECT y.unique_digest, y.seq
    FROM unnest($18::int8[], $19::int8[]) AS u (token, seq)
    JOIN held AS h ON h.token = u.token AND h.ok
    CROSS JOIN LATERAL (SELECT freed_by_success(u.seq) AS unique_digest, u.seq OFFSET 0) AS y
  ) AS z
  WHERE x.digest = z.unique_digest AND x.seq = z.seq
)
SELECT g.token,
  ARRAY(
    SELECT s.seq FROM unnest(h.ranges * g.fin) AS r CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s (seq)
  )
FROM unnest($2::int8[], $3::text[]::int8multirange[]) AS g (token, fin)
LEFT JOIN held AS h ON h.token = g.token
WHERE h.ok IS NOT TRUE
