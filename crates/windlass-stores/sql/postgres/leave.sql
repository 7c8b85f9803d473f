-- leave: ends a worker. A claim of it under way is waited for.
-- in: $1 id, $2 now        out: number
WITH known AS MATERIALIZED (SELECT number FROM worker WHERE id = $1::text FOR UPDATE)
UPDATE worker SET gone_at = coalesce(gone_at, $2::int8)
WHERE number = ANY (ARRAY(SELECT number FROM known))
RETURNING number
