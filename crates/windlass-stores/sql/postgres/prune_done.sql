-- prune_done: takes completed tasks out of their place whose retention is over.
-- in: $1 now, $2 limit        out: seq
WITH
over AS MATERIALIZED (
  SELECT ctid AS tid, block, token, claimed_at, finished_at, retention_ms, expires_at, worker, offsets, took
  FROM done
  WHERE expires_at <= $1::int8
  ORDER BY expires_at
  LIMIT $2::int8
  FOR UPDATE SKIP LOCKED
),
share AS MATERIALIZED (
  SELECT o.*, greatest(0, least(
    cardinality(o.offsets), $2::int8 - (sum(cardinality(o.offsets)) OVER (ORDER BY o.tid) - cardinality(o.offsets))
  ))::int4 AS part
  FROM over AS o
),
gone AS (DELETE FROM done WHERE ctid = ANY (ARRAY(SELECT tid FROM share WHERE part > 0))),
rest AS (
  INSERT INTO done (block, token, claimed_at, finished_at, retention_ms, expires_at, worker, offsets, took)
  SELECT s.block, s.token, s.claimed_at, s.finished_at, s.retention_ms, s.expires_at, s.worker,
    s.offsets[s.part + 1 :], s.took[s.part + 1 :]
  FROM share AS s
  WHERE s.part > 0 AND s.part < cardinality(s.offsets)
)
SELECT s.block * 1024 + u.o FROM share AS s CROSS JOIN LATERAL unnest(s.offsets[: s.part]) AS u (o)
