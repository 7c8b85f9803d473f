-- take_deferred: takes scheduled and retrying tasks out of their place, many at once.
-- in: $1 seqs, sorted, $2 allowed states, a bit each        out: seq, is_retry
DELETE FROM deferred
WHERE ctid = ANY (ARRAY(
  SELECT d.tid
  FROM unnest($1::int8[]) AS u (seq)
  CROSS JOIN LATERAL (
    SELECT x.ctid AS tid
    FROM deferred AS x
    WHERE x.seq = u.seq AND $2::int4 & (CASE WHEN x.is_retry THEN 8 ELSE 1 END) <> 0
    FOR UPDATE
  ) AS d
))
RETURNING seq, is_retry
