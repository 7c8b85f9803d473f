-- outbox_mine: rows of `ready` that this transaction has made, or taken otherwise than by a claim.
-- out: transaction, position, lo, hi, queue, lane
SELECT o.xact, o.position, o.lo, o.hi, o.queue, o.lane
FROM outbox AS o
WHERE o.xact = pg_current_xact_id_if_assigned()::text::int8
ORDER BY o.position, o.lo, o.hi
