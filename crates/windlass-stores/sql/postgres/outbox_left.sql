-- outbox_left: rows of `ready` whose references nobody seems to have pushed, the oldest first.
-- in: $1 for how many ms, $2 lanes, $3 limit        out: transaction, position, lo, hi, queue, lane
SELECT o.xact, o.position, o.lo, o.hi, o.queue, o.lane
FROM outbox AS o
WHERE o.made_at <= clock(NULL) - $1::int8 AND o.lane = ANY ($2::int2[])
ORDER BY o.xact, o.position, o.lo, o.hi
LIMIT $3::int8
