-- put_fate: writes what went otherwise than straight.
-- in: one array for each column
INSERT INTO fate (
  seq, state, attempts, crashes, token, applied, worker, claimed_at, started_at, finished_at, expires_at,
  updated_at, run_at, retention_ms, cancel, history
)
SELECT * FROM unnest(
  $1::int8[], $2::int2[], $3::int4[], $4::int4[], $5::int8[], $6::int8[], $7::int4[], $8::int8[], $9::int8[],
  $10::int8[], $11::int8[], $12::int8[], $13::int8[], $14::int8[], $15::bool[], $16::bytea[]
)
ON CONFLICT (seq) DO UPDATE SET
  state = excluded.state, attempts = excluded.attempts, crashes = excluded.crashes, token = excluded.token,
  applied = excluded.applied, worker = excluded.worker, claimed_at = excluded.claimed_at,
  started_at = excluded.started_at, finished_at = excluded.finished_at, expires_at = excluded.expires_at,
  updated_at = excluded.updated_at, run_at = excluded.run_at, retention_ms = excluded.retention_ms,
  cancel = excluded.cancel, history = excluded.history
