-- The schema of the SQLite store, version 3. Written by `cargo xtask schema`; do not edit.

CREATE TABLE windlass_blob (
  key  INTEGER PRIMARY KEY,
  data BLOB NOT NULL
) STRICT;

CREATE TABLE windlass_broadcast (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,      -- without holes, also after all were forgotten
  message TEXT NOT NULL,
  at      INTEGER NOT NULL
) STRICT;

CREATE TABLE windlass_document (
  class      TEXT NOT NULL,
  key        TEXT NOT NULL,
  version    INTEGER NOT NULL,
  body       TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (class, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE windlass_leader (
  one    INTEGER PRIMARY KEY CHECK (one = 1),
  holder TEXT,
  until  INTEGER NOT NULL,
  term   INTEGER NOT NULL                         -- the highest ever given or seen
) STRICT;

CREATE TABLE windlass_meta (
  version  INTEGER NOT NULL,                      -- how many migrations were applied
  sequence INTEGER NOT NULL                       -- the last number, position or epoch given
) STRICT;

CREATE TABLE windlass_queue (
  name      TEXT PRIMARY KEY,
  is_paused INTEGER NOT NULL
, order_number INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

CREATE TABLE windlass_tally (
  queue       TEXT NOT NULL,
  priority    INTEGER NOT NULL,
  scheduled   INTEGER NOT NULL DEFAULT 0,
  pending     INTEGER NOT NULL DEFAULT 0,
  running     INTEGER NOT NULL DEFAULT 0,
  retrying    INTEGER NOT NULL DEFAULT 0,
  completed   INTEGER NOT NULL DEFAULT 0,
  dead_letter INTEGER NOT NULL DEFAULT 0,
  cancelled   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (queue, priority)
) STRICT, WITHOUT ROWID;

CREATE TABLE windlass_task (
  number           INTEGER PRIMARY KEY,           -- grows with each submit; lists go down along it
  id               BLOB NOT NULL CHECK (length(id) = 16),         -- the UUID's bytes
  state            INTEGER NOT NULL CHECK (state BETWEEN 0 AND 6), -- 0 scheduled 1 pending 2 running 3 retrying 4 completed 5 dead_letter 6 cancelled
  queue            TEXT NOT NULL,
  priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3), -- 0 low … 3 critical
  kind             TEXT NOT NULL,
  position         INTEGER NOT NULL,              -- place in its lane; kept while it runs
  pending_at       INTEGER NOT NULL,              -- all times: ms since 1970
  attempts         INTEGER NOT NULL DEFAULT 0,
  crashes          INTEGER NOT NULL DEFAULT 0,
  max_retries      INTEGER NOT NULL,
  max_crashes      INTEGER NOT NULL,
  timeout_ms       INTEGER NOT NULL,
  retention_ms     INTEGER NOT NULL,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  run_at           INTEGER,                       -- when it was last due later
  claimed_at       INTEGER,
  started_at       INTEGER,
  finished_at      INTEGER,
  expires_at       INTEGER,                       -- end of retention
  epoch            INTEGER,                       -- the last claim
  applied_epoch    INTEGER,                       -- the last claim whose end its worker reported
  worker           INTEGER,                       -- worker.number of the last claim
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  idempotency_key  TEXT,
  unique_digest    BLOB,
  unique_for_ms    INTEGER,                       -- NULL: until finished
  large            INTEGER NOT NULL DEFAULT 0,    -- 1: payload in blob, 2: result in blob
  extras           TEXT,                          -- JSON; NULL when empty
  progress         TEXT,                          -- JSON
  history          BLOB,                          -- JSON; NULL on the happy path
  result           BLOB,
  payload          BLOB
) STRICT;

CREATE TABLE windlass_unique_key (
  digest BLOB PRIMARY KEY,
  holder BLOB NOT NULL,                           -- task.id; a timed key may outlive its task
  until  INTEGER                                  -- NULL: freed by the holder's exit
) STRICT, WITHOUT ROWID;

CREATE TABLE windlass_worker (
  number      INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  card        TEXT NOT NULL,                      -- JSON
  run_order   TEXT NOT NULL,                      -- run, pause, drain
  started_at  INTEGER NOT NULL,
  beat_at     INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  gone_at     INTEGER                             -- declared lost, or left
) STRICT;

CREATE INDEX windlass_queue_paused ON windlass_queue (order_number) WHERE is_paused = 1;

CREATE INDEX windlass_task_due ON windlass_task (run_at, number) WHERE state = 0 OR state = 3;

CREATE INDEX windlass_task_expiring ON windlass_task (expires_at) WHERE expires_at IS NOT NULL;

CREATE UNIQUE INDEX windlass_task_id ON windlass_task (id);

CREATE INDEX windlass_task_pending ON windlass_task (queue, priority, (crashes >= 2), position) WHERE state = 1;

CREATE INDEX windlass_task_rare ON windlass_task (state, number) WHERE state = 0 OR state = 3 OR state = 5 OR state = 6;

CREATE INDEX windlass_task_running ON windlass_task (worker) WHERE state = 2;

CREATE INDEX windlass_unique_key_until ON windlass_unique_key (until) WHERE until IS NOT NULL;

CREATE INDEX windlass_worker_alive ON windlass_worker (lease_until) WHERE gone_at IS NULL;

CREATE INDEX windlass_worker_gone ON windlass_worker (gone_at) WHERE gone_at IS NOT NULL;
