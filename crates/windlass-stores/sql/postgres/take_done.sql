-- take_done: takes completed tasks out of their place, many at once.
-- in: $1 seqs, $2 retention must last beyond this
-- out: seq, token, worker's number, worker's id, claimed_at, finished_at, retention_ms, took
WITH
wanted AS MATERIALIZED (
  SELECT u.seq >> 10 AS block, array_agg((u.seq & 1023)::int2) AS offsets FROM unnest($1::int8[]) AS u (seq) GROUP BY 1
),
hit AS MATERIALIZED (
  SELECT d.*, w.offsets AS chosen
  FROM (SELECT * FROM wanted ORDER BY block) AS w
  CROSS JOIN LATERAL (
    SELECT x.ctid AS tid, x.*
    FROM done AS x
    WHERE x.block = w.block AND x.offsets && w.offsets AND x.expires_at > $2::int8
    FOR UPDATE
  ) AS d
),
part AS MATERIALIZED (
  SELECT h.tid, h.block, h.token, h.claimed_at, h.finished_at, h.retention_ms, h.expires_at, h.worker, u.o, u.t,
    u.o = ANY (h.chosen) AS is_taken
  FROM hit AS h
  CROSS JOIN LATERAL unnest(h.offsets, h.took) AS u (o, t)
),
gone AS (DELETE FROM done WHERE ctid = ANY (ARRAY(SELECT tid FROM hit))),
rest AS (
  INSERT INTO done (block, token, claimed_at, finished_at, retention_ms, expires_at, worker, offsets, took)
  SELECT p.block, p.token, p.claimed_at, p.finished_at, p.retention_ms, p.expires_at, p.worker,
    array_agg(p.o ORDER BY p.o), array_agg(p.t ORDER BY p.o)
  FROM part AS p
  WHERE NOT p.is_taken
  GROUP BY p.tid, p.block, p.token, p.claimed_at, p.finished_at, p.retention_ms, p.expires_at, p.worker
)
SELECT p.block * 1024 + p.o, p.token, p.worker, w.id, p.claimed_at, p.finished_at, p.retention_ms, p.t
FROM part AS p
JOIN worker AS w ON w.number = p.worker
WHERE p.is_taken
