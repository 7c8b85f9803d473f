-- promote: lets tasks whose time has come wait for a worker, the longest due first.
-- in: $1 now, $2 limit, $3 tasks in a range at most        out: queue name, how many
-- The line with --+ is for damage: of what is due, only $4 seqs.
WITH
due AS MATERIALIZED (
  DELETE FROM deferred
  WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM deferred
    WHERE run_at <= $1::int8
    --+ AND seq = ANY ($4::int8[])
    ORDER BY run_at, seq
    LIMIT $2::int8
    FOR UPDATE SKIP LOCKED
  ))
  RETURNING seq, run_at, queue, lane, bits, is_retry
),
-- A range holds what was due at one instant: whatever was due earlier stands before it. Suspects stand alone.
island AS (
  SELECT d.*,
    CASE
      WHEN d.lane % 2 = 1 THEN d.seq
      ELSE d.seq - row_number() OVER (PARTITION BY d.queue, d.lane, d.bits, d.run_at ORDER BY d.seq)
    END AS key
  FROM due AS d
),
piece AS (
  SELECT i.*, (row_number() OVER (PARTITION BY i.queue, i.lane, i.bits, i.run_at, i.key ORDER BY i.seq) - 1) / $3::int8 AS part
  FROM island AS i
),
span AS (
  SELECT min(seq) AS lo, max(seq) AS hi, queue, lane, bits, run_at
  FROM piece
  GROUP BY queue, lane, bits, run_at, key, part
),
placed AS (
  INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
  SELECT nextval('position_seq'), s.lo, s.hi, $1::int8, s.queue, s.lane, s.bits
  FROM (SELECT * FROM span ORDER BY run_at, lo) AS s
),
blank AS (DELETE FROM progress WHERE seq = ANY (ARRAY(SELECT seq FROM due WHERE bits & 1 = 1))),
counted AS (
  INSERT INTO delta (queue, priority, scheduled, retrying, pending)
  SELECT queue, lane / 2, -count(*) FILTER (WHERE NOT is_retry), -count(*) FILTER (WHERE is_retry), count(*)
  FROM due
  GROUP BY 1, 2
)
SELECT q.name, count(*) FROM due AS d JOIN queue AS q ON q.id = d.queue GROUP BY 1
