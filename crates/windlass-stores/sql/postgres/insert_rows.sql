-- insert_rows: stores the rows of tasks, wherever they will stand.
-- in: $1 now
--     tasks: $2 seq, $3 stamp, $4 queue, $5 kind, $6 priority, $7 max_retries, $8 max_crashes,
--            $9 timeout_ms, $10 retention_ms, $11 extras, $12 payload, $13 run_at
INSERT INTO task (
  seq, stamp, created_at, run_at, timeout_ms, retention_ms, queue, kind, max_retries, max_crashes, priority,
  extras, payload
)
SELECT u.seq, u.stamp, $1::int8, u.run_at, u.timeout_ms, u.retention_ms, u.queue, u.kind, u.max_retries,
  u.max_crashes, u.priority, u.extras, u.payload
FROM unnest(
  $2::int8[], $3::int8[], $4::int4[], $5::int4[], $6::int2[], $7::int4[], $8::int4[], $9::int8[], $10::int8[],
  $11::bytea[], $12::bytea[], $13::int8[]
) AS u (
  seq, stamp, queue, kind, priority, max_retries, max_crashes, timeout_ms, retention_ms, extras, payload, run_at
)
