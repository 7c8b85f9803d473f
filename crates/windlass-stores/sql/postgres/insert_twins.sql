-- insert_twins: what tasks share with ones that may be their repetition.
-- in: $1 seqs        out: seq, stamp, kind, queue, payload, whether its retention is over at $2
SELECT t.seq, t.stamp, k.name, q.name, t.payload,
  coalesce(
    (SELECT f.expires_at <= $2::int8 FROM fate AS f WHERE f.seq = t.seq AND f.state IS NOT NULL),
    (
      SELECT d.expires_at <= $2::int8
      FROM done AS d
      WHERE d.block = t.seq >> 10 AND (t.seq & 1023)::int2 = ANY (d.offsets)
    ),
    false
  )
FROM task AS t
LEFT JOIN kind AS k ON k.id = t.kind
LEFT JOIN queue AS q ON q.id = t.queue
WHERE t.seq = ANY ($1::int8[])
