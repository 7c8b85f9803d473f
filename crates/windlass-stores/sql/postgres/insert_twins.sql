-- insert_twins: what tasks share with ones that may be their repetition.
-- in: $1 seqs        out: seq, stamp, kind, queue, payload, whether its retention is over at $2, whether it is gone
SELECT t.seq, t.stamp, t.kind, t.queue, t.payload, coalesce(t.expires_at <= $2::int8, false), t.state IS NULL
FROM unnest($1::int8[]) AS u (seq)
CROSS JOIN LATERAL (SELECT x.* FROM record AS x WHERE x.seq = u.seq LIMIT 1) AS t
