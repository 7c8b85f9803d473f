-- outbox_drop: removes rows of lanes whose broker is away for long: it will be told of everything when it is back.
-- in: $1 lanes, $2 limit
DELETE FROM outbox
WHERE ctid = ANY (ARRAY(SELECT o.ctid FROM outbox AS o WHERE o.lane = ANY ($1::int2[]) LIMIT $2::int8))
