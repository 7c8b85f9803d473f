-- cancel_request: keeps the wish to cancel a running task, whose lease the caller has locked.
-- in: $1 seq, $2 now, $3 history
INSERT INTO fate (seq, attempts, crashes, updated_at, cancel, history)
VALUES ($1::int8, 0, 0, $2::int8, true, $3::bytea)
ON CONFLICT (seq) DO UPDATE SET cancel = true, updated_at = excluded.updated_at, history = excluded.history
