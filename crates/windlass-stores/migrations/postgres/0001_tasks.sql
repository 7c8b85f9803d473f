-- The first layout. A task's row is written once; where the task stands is told by which of five places
-- holds its number: `ready` (pending), `lease` (running), `deferred` (scheduled, retrying), `fate` with a
-- state (dead, cancelled) or `done` (completed). Places hold ranges and sets of numbers, so that claiming
-- and completing write nothing per task. All times: ms since 1970. Names are looked up along the search
-- path, which every connection sets to the schema.

CREATE SEQUENCE task_seq;
CREATE SEQUENCE position_seq;
CREATE SEQUENCE token_seq;

-- The store's clock: the server's, unless a test gives the time.
CREATE FUNCTION clock(told int8) RETURNS int8 LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(told, floor(extract(epoch FROM clock_timestamp()) * 1000)::int8)
$$;

CREATE TABLE queue (
  id         int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL UNIQUE,
  is_paused  bool NOT NULL DEFAULT false,
  is_ordered bool NOT NULL DEFAULT false           -- someone gave it an order: it is known without tasks
);

CREATE TABLE kind (
  id   int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
);

-- No column is ever NULL: a row with one would be 8 bytes longer. `task`, `keyed` and `result` have one partition
-- each per generation of numbers (0002); a row of a task that stands in no place is only waiting for its
-- generation to be dropped, and nobody sees it.
-- `task` and `ready` have no CHECK constraints: the server parses them again for each statement, which cost 5 % of
-- the submits. The function `submit` refuses impossible values, and a reader treats such a row as damaged.
CREATE TABLE task (
  seq          int8 PRIMARY KEY,
  stamp        int8 NOT NULL,                      -- the time in its id; with seq it makes the id
  created_at   int8 NOT NULL,
  run_at       int8 NOT NULL,                      -- as submitted; 0: at once
  timeout_ms   int8 NOT NULL,
  retention_ms int8 NOT NULL,
  queue        int4 NOT NULL,
  kind         int4 NOT NULL,
  max_retries  int4 NOT NULL,
  max_crashes  int4 NOT NULL,
  priority     int2 NOT NULL,                      -- 0 low … 3 critical
  extras       bytea NOT NULL,                     -- JSON; empty for none
  payload      bytea NOT NULL
) PARTITION BY RANGE (seq);

-- The keys of a task that was submitted with some.
CREATE TABLE keyed (
  seq             int8 PRIMARY KEY,
  idempotency_key text,
  unique_digest   bytea,
  unique_for_ms   int8                             -- NULL: until finished
) PARTITION BY RANGE (seq);

CREATE TABLE uniq (
  digest bytea PRIMARY KEY,
  seq    int8 NOT NULL,                            -- the holder; a timed key may outlive its task
  stamp  int8 NOT NULL,                            -- of the holder, so that its id can still be told
  until  int8                                      -- NULL: freed by the holder's exit
);
CREATE INDEX uniq_until ON uniq (until) WHERE until IS NOT NULL;

-- Pending tasks lo … hi, all of which exist. Rows are immutable: a range is split by deleting it and
-- inserting the rest with the same position, never by UPDATE, or two claimers could take one task.
CREATE TABLE ready (
  position int8 NOT NULL,
  lo       int8 PRIMARY KEY,
  hi       int8 NOT NULL,
  since    int8 NOT NULL,                          -- when they became pending
  queue    int4 NOT NULL,
  lane     int2 NOT NULL,                          -- priority × 2, + 1 for suspects, which stand alone
  bits     int2 NOT NULL                           -- 1: may have a fate; 2: has a key that success frees; 4: a payload over 4 KiB
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX ready_order ON ready (queue, lane, position);

-- One row per claim. The token is the epoch of its tasks; it is odd when one of them has the key bit.
CREATE TABLE lease (
  token      int8 PRIMARY KEY,
  claimed_at int8 NOT NULL,
  worker     int4 NOT NULL,
  los        int8[] NOT NULL,                      -- the ranges as they were taken: where each began,
  positions  int8[] NOT NULL,                      -- where it stood,
  sinces     int8[] NOT NULL,                      -- and since when
  ranges     int8multirange NOT NULL,              -- what is still open
  epoch      int8                                  -- of a run that was given a lease of its own: the token of its claim
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX lease_epoch ON lease (epoch) WHERE epoch IS NOT NULL;

CREATE TABLE deferred (
  seq      int8 PRIMARY KEY,
  run_at   int8 NOT NULL,
  queue    int4 NOT NULL,
  lane     int2 NOT NULL CHECK (lane BETWEEN 0 AND 7),
  bits     int2 NOT NULL,
  is_retry bool NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX deferred_due ON deferred (run_at, seq);

-- What went otherwise than straight. Written only by who holds the task's place.
CREATE TABLE fate (
  seq          int8 PRIMARY KEY,
  state        int2 CHECK (state IN (5, 6)),       -- 5 dead_letter, 6 cancelled; NULL while elsewhere
  attempts     int4 NOT NULL CHECK (attempts >= 0),   -- before the present run
  crashes      int4 NOT NULL CHECK (crashes >= 0),
  token        int8,                               -- the last claim but for one that runs or completed
  applied      int8,                               -- the last claim whose end its worker reported
  worker       int4,
  claimed_at   int8,
  started_at   int8,
  finished_at  int8,
  expires_at   int8,                               -- end of retention
  updated_at   int8 NOT NULL,
  run_at       int8,
  retention_ms int8,
  cancel       bool NOT NULL DEFAULT false,        -- a cancel waits for the run to end
  history      bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX fate_expiring ON fate (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX fate_state ON fate (state, seq) WHERE state IS NOT NULL;
CREATE INDEX fate_cancel ON fate (seq) WHERE cancel;

-- Completed tasks: one row per claim, block of 1,024 numbers and retention. Rows are immutable, as in `ready`.
CREATE TABLE done (
  block        int8 NOT NULL,                      -- seq >> 10
  token        int8 NOT NULL,
  claimed_at   int8 NOT NULL,
  finished_at  int8 NOT NULL,
  retention_ms int8 NOT NULL,
  expires_at   int8 NOT NULL,
  worker       int4 NOT NULL,
  offsets      int2[] NOT NULL,                    -- seq & 1023
  took         int4[] NOT NULL                     -- ms, beside the offsets; -1 where not told
) WITH (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_threshold = -1
);
CREATE INDEX done_block ON done (block);
CREATE INDEX done_expiring ON done (expires_at);

CREATE TABLE result (
  seq    int8 PRIMARY KEY,
  output bytea NOT NULL
) PARTITION BY RANGE (seq);

CREATE TABLE progress (
  seq  int8 PRIMARY KEY,
  body text NOT NULL                               -- JSON
);

-- Counts by state: every statement adds rows to `delta`, which are folded into `counter` now and then.
CREATE TABLE delta (
  queue       int4 NOT NULL,
  priority    int2 NOT NULL,
  scheduled   int4 NOT NULL DEFAULT 0,
  pending     int4 NOT NULL DEFAULT 0,
  running     int4 NOT NULL DEFAULT 0,
  retrying    int4 NOT NULL DEFAULT 0,
  completed   int4 NOT NULL DEFAULT 0,
  dead_letter int4 NOT NULL DEFAULT 0,
  cancelled   int4 NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE counter (
  queue       int4 NOT NULL,
  priority    int2 NOT NULL,
  scheduled   int8 NOT NULL,
  pending     int8 NOT NULL,
  running     int8 NOT NULL,
  retrying    int8 NOT NULL,
  completed   int8 NOT NULL,
  dead_letter int8 NOT NULL,
  cancelled   int8 NOT NULL,
  PRIMARY KEY (queue, priority)
);

-- One row per incarnation of a worker, kept for ever: a worker that was lost never comes back, and
-- finished tasks go on naming theirs.
CREATE TABLE worker (
  number      int4 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id          text NOT NULL UNIQUE,
  card        text NOT NULL,                       -- JSON
  run_order   text NOT NULL DEFAULT 'run',         -- run, pause, drain
  started_at  int8 NOT NULL,
  beat_at     int8 NOT NULL,
  lease_until int8 NOT NULL,
  gone_at     int8                                 -- declared lost, or left
) WITH (fillfactor = 50);
CREATE INDEX worker_alive ON worker (number) WHERE gone_at IS NULL;

CREATE TABLE leader (
  one    int2 PRIMARY KEY CHECK (one = 1),
  holder text,
  until  int8 NOT NULL,
  term   int8 NOT NULL                             -- the highest ever given or seen
);
INSERT INTO leader (one, holder, until, term) VALUES (1, NULL, 0, 0);

CREATE TABLE document (
  class      text NOT NULL,
  key        text COLLATE "C" NOT NULL,
  version    int8 NOT NULL,
  body       text NOT NULL,
  updated_at int8 NOT NULL,
  PRIMARY KEY (class, key)
);
CREATE SEQUENCE audit_seq;

-- Takes one task out of the place where it stands, if its state is one of `allowed` (a bit each), and
-- tells where that was. A task whose retention is over at `horizon` is not there. Each step has a fresh
-- snapshot and locks before it believes; what has moved meanwhile is looked for again.
CREATE FUNCTION take(
  wanted int8, allowed int4, horizon int8,
  OUT state int2, OUT is_taken bool, OUT at_position int8, OUT at_since int8, OUT at_token int8,
  OUT at_worker int4, OUT at_claimed int8, OUT at_finished int8, OUT at_retention int8, OUT at_took int4
) LANGUAGE plpgsql AS $$
DECLARE
  r record;
  place int4;
BEGIN
  is_taken := false;
  FOR round IN 1 .. 1000 LOOP
    SELECT * INTO r FROM (SELECT * FROM ready WHERE lo <= wanted ORDER BY lo DESC LIMIT 1) AS z WHERE z.hi >= wanted;
    IF FOUND THEN
      state := 1; at_position := r.position; at_since := r.since;
      IF allowed & 2 = 0 THEN RETURN; END IF;
      -- Waits for a claimer, and then misses.
      DELETE FROM ready AS x WHERE x.lo = r.lo AND x.hi = r.hi AND x.position = r.position;
      IF FOUND THEN
        INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
          SELECT r.position, v.lo, v.hi, r.since, r.queue, r.lane, r.bits
          FROM (VALUES (r.lo, wanted - 1), (wanted + 1, r.hi)) AS v (lo, hi) WHERE v.lo <= v.hi;
        is_taken := true;
        RETURN;
      END IF;
      CONTINUE;
    END IF;

    SELECT * INTO r FROM deferred AS x WHERE x.seq = wanted;
    IF FOUND THEN
      state := CASE WHEN r.is_retry THEN 3 ELSE 0 END; at_position := NULL; at_since := NULL;
      IF allowed & (1 << state) = 0 THEN RETURN; END IF;
      DELETE FROM deferred AS x WHERE x.seq = wanted AND x.run_at = r.run_at AND x.is_retry = r.is_retry;
      IF FOUND THEN
        is_taken := true;
        RETURN;
      END IF;
      CONTINUE;
    END IF;

    SELECT x.token INTO r FROM lease AS x WHERE x.ranges @> wanted;
    IF FOUND THEN
      SELECT x.* INTO r FROM lease AS x WHERE x.token = r.token AND x.ranges @> wanted FOR UPDATE;
      IF NOT FOUND THEN CONTINUE; END IF;
      state := 2; at_token := coalesce(r.epoch, r.token); at_worker := r.worker; at_claimed := r.claimed_at;
      SELECT p.position, p.since INTO at_position, at_since
        FROM unnest(r.los, r.positions, r.sinces) AS p (lo, position, since)
        WHERE p.lo <= wanted ORDER BY p.lo DESC LIMIT 1;
      IF allowed & 4 = 0 THEN RETURN; END IF;
      IF r.ranges <@ int8multirange(int8range(wanted, wanted, '[]')) THEN
        DELETE FROM lease AS x WHERE x.token = r.token;
      ELSE
        UPDATE lease AS x SET ranges = x.ranges - int8multirange(int8range(wanted, wanted, '[]')) WHERE x.token = r.token;
      END IF;
      is_taken := true;
      RETURN;
    END IF;

    SELECT x.state, x.expires_at INTO r FROM fate AS x WHERE x.seq = wanted AND x.state IS NOT NULL FOR UPDATE;
    IF FOUND THEN
      IF r.expires_at <= horizon THEN state := NULL; RETURN; END IF;
      state := r.state;
      IF allowed & (1 << state) = 0 THEN RETURN; END IF;
      -- In no place until it is put somewhere: its row is locked, and will be written or removed.
      UPDATE fate AS x SET state = NULL, expires_at = NULL WHERE x.seq = wanted;
      is_taken := true;
      RETURN;
    END IF;

    SELECT x.ctid AS tid, x.* INTO r FROM done AS x
      WHERE x.block = wanted >> 10 AND (wanted & 1023)::int2 = ANY (x.offsets) FOR UPDATE;
    IF FOUND THEN
      IF r.expires_at <= horizon THEN state := NULL; RETURN; END IF;
      state := 4; at_token := r.token; at_worker := r.worker; at_claimed := r.claimed_at;
      at_finished := r.finished_at; at_retention := r.retention_ms;
      place := array_position(r.offsets, (wanted & 1023)::int2);
      at_took := r.took[place];
      IF allowed & 16 = 0 THEN RETURN; END IF;
      DELETE FROM done AS x WHERE x.ctid = r.tid;
      IF NOT FOUND THEN CONTINUE; END IF;
      INSERT INTO done (block, token, claimed_at, finished_at, retention_ms, expires_at, worker, offsets, took)
        SELECT r.block, r.token, r.claimed_at, r.finished_at, r.retention_ms, r.expires_at, r.worker,
          r.offsets[:place - 1] || r.offsets[place + 1:], r.took[:place - 1] || r.took[place + 1:]
        WHERE cardinality(r.offsets) > 1;
      is_taken := true;
      RETURN;
    END IF;

    -- All places at one instant: the row of a task that stands in none may wait for its generation to go.
    PERFORM 1 FROM record AS x WHERE x.seq = wanted AND x.state IS NOT NULL;
    IF NOT FOUND THEN state := NULL; RETURN; END IF;
    IF round > 10 THEN PERFORM pg_sleep(0.001); END IF;
  END LOOP;
  RAISE EXCEPTION 'task % keeps moving', wanted USING ERRCODE = '40001';
END $$;

-- The rows of a range. A function, since a statement has to open every partition that it may read, and a function
-- only those of its numbers: with 40 generations a claim of one task takes 0.30 ms so, and 0.37 ms otherwise.
CREATE FUNCTION rows_between(first int8, last int8) RETURNS SETOF task LANGUAGE plpgsql STABLE ROWS 100 AS $$
BEGIN
  RETURN QUERY SELECT x.* FROM task AS x WHERE x.seq BETWEEN first AND last;
END $$;

-- The unique key that the success of a task frees. A function for the same reason; it is seldom asked.
CREATE FUNCTION freed_by_success(wanted int8) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT k.unique_digest FROM keyed AS k WHERE k.seq = wanted AND k.unique_for_ms IS NULL);
END $$;

-- Everything there is to tell of tasks, from wherever they stand: a chain of probes for each. Right for a
-- look-up or a page; sums over many tasks start from the places instead. Without a state a task is gone.
CREATE VIEW record AS
SELECT t.seq, t.stamp, t.created_at, t.timeout_ms, t.max_retries, t.max_crashes, t.priority, t.extras, t.payload,
  q.name AS queue, k.name AS kind, y.idempotency_key, p.body AS progress, f.history,
  CASE
    WHEN l.token IS NOT NULL THEN 2
    WHEN r.lo IS NOT NULL THEN 1
    WHEN d.seq IS NOT NULL THEN CASE WHEN d.is_retry THEN 3 ELSE 0 END
    WHEN f.state IS NOT NULL THEN f.state
    WHEN x.token IS NOT NULL THEN 4
  END::int2 AS state,
  coalesce(f.attempts, 0) + (l.token IS NOT NULL OR x.token IS NOT NULL)::int4 AS attempts,
  coalesce(f.crashes, 0) AS crashes,
  coalesce(x.retention_ms, f.retention_ms, t.retention_ms) AS retention_ms,
  coalesce(l.epoch, l.token, x.token, f.token) AS token,
  w.id AS worker,
  coalesce(l.claimed_at, x.claimed_at, f.claimed_at) AS claimed_at,
  l.token IS NOT NULL AND coalesce(f.cancel, false) AS is_cancel_requested,
  CASE
    WHEN l.token IS NOT NULL THEN greatest(l.claimed_at, f.updated_at)
    WHEN r.lo IS NOT NULL THEN greatest(r.since, f.updated_at)
    WHEN x.token IS NOT NULL THEN x.finished_at
    ELSE coalesce(f.updated_at, t.created_at)
  END AS updated_at,
  coalesce(f.run_at, nullif(t.run_at, 0)) AS run_at,
  CASE
    WHEN l.token IS NOT NULL THEN NULL
    WHEN x.token IS NOT NULL THEN x.finished_at - nullif(x.took, -1)
    ELSE f.started_at
  END AS started_at,
  coalesce(x.finished_at, CASE WHEN f.state IS NOT NULL THEN f.finished_at END) AS finished_at,
  coalesce(x.expires_at, CASE WHEN f.state IS NOT NULL THEN f.expires_at END) AS expires_at
FROM task AS t
LEFT JOIN queue AS q ON q.id = t.queue
LEFT JOIN kind AS k ON k.id = t.kind
LEFT JOIN LATERAL (SELECT z.* FROM fate AS z WHERE z.seq = t.seq LIMIT 1) AS f ON true
LEFT JOIN LATERAL (SELECT z.* FROM keyed AS z WHERE z.seq = t.seq LIMIT 1) AS y ON true
LEFT JOIN LATERAL (SELECT z.* FROM progress AS z WHERE z.seq = t.seq LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT z.* FROM lease AS z WHERE z.ranges @> t.seq LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT z.* FROM deferred AS z WHERE z.seq = t.seq LIMIT 1) AS d ON true
LEFT JOIN LATERAL (
  SELECT z.* FROM (SELECT v.* FROM ready AS v WHERE v.lo <= t.seq ORDER BY v.lo DESC LIMIT 1) AS z WHERE z.hi >= t.seq
) AS r ON true
LEFT JOIN LATERAL (
  SELECT z.token, z.worker, z.claimed_at, z.finished_at, z.retention_ms, z.expires_at,
    z.took[array_position(z.offsets, (t.seq & 1023)::int2)] AS took
  FROM done AS z
  WHERE z.block = t.seq >> 10 AND (t.seq & 1023)::int2 = ANY (z.offsets)
  LIMIT 1
) AS x ON true
LEFT JOIN LATERAL (
  SELECT z.id FROM worker AS z WHERE z.number = coalesce(l.worker, x.worker, f.worker) LIMIT 1
) AS w ON true;

CREATE TABLE meta (
  version int4 NOT NULL                            -- how many migrations were applied
);
INSERT INTO meta (version) VALUES (0);
