-- promote_later: puts off a task that cannot be made pending.
-- in: $1 seq, $2 until when
UPDATE deferred SET run_at = $2::int8 WHERE seq = $1::int8
