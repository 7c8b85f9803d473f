-- The schema of the PostgreSQL store, version 11. Written by `cargo xtask schema`; do not edit.

CREATE SEQUENCE audit_seq AS bigint MINVALUE 1 START 1;

CREATE SEQUENCE generation_seq AS bigint MINVALUE 0 START 0;

CREATE SEQUENCE position_seq AS bigint MINVALUE 1 START 1;

CREATE SEQUENCE task_seq AS bigint MINVALUE 1 START 1;

CREATE SEQUENCE token_seq AS bigint MINVALUE 1 START 1;

CREATE TABLE broker (
  name text NOT NULL,
  seen_at bigint NOT NULL,
  generation text,
  PRIMARY KEY (name)
);

CREATE TABLE counter (
  queue integer NOT NULL,
  priority smallint NOT NULL,
  scheduled bigint NOT NULL,
  pending bigint NOT NULL,
  running bigint NOT NULL,
  retrying bigint NOT NULL,
  completed bigint NOT NULL,
  dead_letter bigint NOT NULL,
  cancelled bigint NOT NULL,
  empty_since bigint,
  PRIMARY KEY (queue, priority)
);

CREATE TABLE deferred (
  seq bigint NOT NULL,
  run_at bigint NOT NULL,
  queue integer NOT NULL,
  lane smallint NOT NULL,
  bits smallint NOT NULL,
  is_retry boolean NOT NULL,
  PRIMARY KEY (seq),
  CHECK (((lane >= 0) AND (lane <= 7)))
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE delta (
  queue integer NOT NULL,
  priority smallint NOT NULL,
  scheduled integer NOT NULL DEFAULT 0,
  pending integer NOT NULL DEFAULT 0,
  running integer NOT NULL DEFAULT 0,
  retrying integer NOT NULL DEFAULT 0,
  completed integer NOT NULL DEFAULT 0,
  dead_letter integer NOT NULL DEFAULT 0,
  cancelled integer NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE document (
  class text NOT NULL,
  key text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  body text NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (class, key)
);

CREATE TABLE done (
  block bigint NOT NULL,
  token bigint NOT NULL,
  claimed_at bigint NOT NULL,
  finished_at bigint NOT NULL,
  retention_ms bigint NOT NULL,
  expires_at bigint NOT NULL,
  worker integer NOT NULL,
  offsets smallint[] NOT NULL,
  took integer[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, autovacuum_vacuum_insert_threshold=-1);

CREATE TABLE fate (
  seq bigint NOT NULL,
  state smallint,
  attempts integer NOT NULL,
  crashes integer NOT NULL,
  token bigint,
  applied bigint,
  worker integer,
  claimed_at bigint,
  started_at bigint,
  finished_at bigint,
  expires_at bigint,
  updated_at bigint NOT NULL,
  run_at bigint,
  retention_ms bigint,
  cancel boolean NOT NULL DEFAULT false,
  history bytea,
  PRIMARY KEY (seq),
  CHECK ((attempts >= 0)),
  CHECK ((crashes >= 0)),
  CHECK ((state = ANY (ARRAY[5, 6])))
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);

CREATE TABLE generation (
  number bigint NOT NULL,
  lo bigint NOT NULL,
  hi bigint NOT NULL,
  opened_at bigint,
  closed_at bigint,
  used bigint NOT NULL DEFAULT 0,
  pruned bigint NOT NULL DEFAULT 0,
  UNIQUE (lo),
  PRIMARY KEY (number)
);

CREATE TABLE identity (
  one smallint NOT NULL,
  id text NOT NULL,
  PRIMARY KEY (one),
  CHECK ((one = 1))
);

CREATE TABLE keyed (
  seq bigint NOT NULL,
  idempotency_key text,
  unique_digest bytea,
  unique_for_ms bigint,
  PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

CREATE TABLE kind (
  id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
  name text NOT NULL,
  UNIQUE (name),
  PRIMARY KEY (id)
);

CREATE TABLE leader (
  one smallint NOT NULL,
  holder text,
  until bigint NOT NULL,
  term bigint NOT NULL,
  PRIMARY KEY (one),
  CHECK ((one = 1))
);

CREATE TABLE lease (
  token bigint NOT NULL,
  claimed_at bigint NOT NULL,
  worker integer NOT NULL,
  los bigint[] NOT NULL,
  positions bigint[] NOT NULL,
  sinces bigint[] NOT NULL,
  ranges int8multirange NOT NULL,
  epoch bigint,
  PRIMARY KEY (token)
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE meta (
  version integer NOT NULL
);

CREATE TABLE outbox (
  xact bigint NOT NULL,
  made_at bigint NOT NULL,
  "position" bigint NOT NULL,
  lo bigint NOT NULL,
  hi bigint NOT NULL,
  queue integer NOT NULL,
  lane smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE progress (
  seq bigint NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (seq)
);

CREATE TABLE queue (
  id integer NOT NULL GENERATED ALWAYS AS IDENTITY,
  name text NOT NULL,
  is_paused boolean NOT NULL DEFAULT false,
  is_ordered boolean NOT NULL DEFAULT false,
  UNIQUE (name),
  PRIMARY KEY (id)
);

CREATE TABLE ready (
  "position" bigint NOT NULL,
  lo bigint NOT NULL,
  hi bigint NOT NULL,
  since bigint NOT NULL,
  queue integer NOT NULL,
  lane smallint NOT NULL,
  bits smallint NOT NULL,
  PRIMARY KEY (lo)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE ready_count (
  queue integer NOT NULL,
  lane smallint NOT NULL,
  rows bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE result (
  seq bigint NOT NULL,
  output bytea NOT NULL,
  PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

CREATE TABLE rewrite (
  one smallint NOT NULL,
  number bigint NOT NULL,
  lo bigint NOT NULL,
  hi bigint NOT NULL,
  copied_to bigint NOT NULL,
  copied bigint NOT NULL,
  PRIMARY KEY (one),
  CHECK ((one = 1))
);

CREATE TABLE rewrite_change (
  seq bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE task (
  seq bigint NOT NULL,
  stamp bigint NOT NULL,
  created_at bigint NOT NULL,
  run_at bigint NOT NULL,
  timeout_ms bigint NOT NULL,
  retention_ms bigint NOT NULL,
  queue integer NOT NULL,
  kind integer NOT NULL,
  max_retries integer NOT NULL,
  max_crashes integer NOT NULL,
  priority smallint NOT NULL,
  extras bytea NOT NULL,
  payload bytea NOT NULL,
  PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

CREATE TABLE uniq (
  digest bytea NOT NULL,
  seq bigint NOT NULL,
  stamp bigint NOT NULL,
  until bigint,
  PRIMARY KEY (digest)
);

CREATE TABLE worker (
  number integer NOT NULL GENERATED ALWAYS AS IDENTITY,
  id text NOT NULL,
  card text NOT NULL,
  run_order text NOT NULL DEFAULT 'run'::text,
  started_at bigint NOT NULL,
  beat_at bigint NOT NULL,
  lease_until bigint NOT NULL,
  gone_at bigint,
  UNIQUE (id),
  PRIMARY KEY (number)
) WITH (fillfactor=50);

CREATE TABLE keyed_0 PARTITION OF keyed FOR VALUES FROM ('0') TO ('4294967296') WITH (autovacuum_vacuum_insert_threshold=-1);

CREATE TABLE result_0 PARTITION OF result FOR VALUES FROM ('0') TO ('4294967296') WITH (autovacuum_vacuum_insert_threshold=-1);

CREATE TABLE task_0 PARTITION OF task FOR VALUES FROM ('0') TO ('4294967296') WITH (autovacuum_vacuum_insert_threshold=-1);

CREATE INDEX deferred_due ON deferred USING btree (run_at, seq);

CREATE INDEX done_block ON done USING btree (block);

CREATE INDEX done_expiring ON done USING btree (expires_at);

CREATE INDEX fate_cancel ON fate USING btree (seq) WHERE cancel;

CREATE INDEX fate_expiring ON fate USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX fate_state ON fate USING btree (state, seq) WHERE (state IS NOT NULL);

CREATE INDEX lease_epoch ON lease USING btree (epoch) WHERE (epoch IS NOT NULL);

CREATE INDEX outbox_xact ON outbox USING btree (xact);

CREATE INDEX queue_paused ON queue USING btree (name) WHERE is_paused;

CREATE INDEX ready_order ON ready USING btree (queue, lane, "position");

CREATE INDEX uniq_until ON uniq USING btree (until) WHERE (until IS NOT NULL);

CREATE INDEX worker_alive ON worker USING btree (number) WHERE (gone_at IS NULL);

CREATE INDEX worker_gone ON worker USING btree (gone_at) WHERE (gone_at IS NOT NULL);

-- CREATE VIEW counts (queue text, priority text, scheduled bigint, pending bigint, running bigint, retrying bigint, completed bigint, dead_letter bigint, cancelled bigint);

-- CREATE VIEW events (seq bigint, task_id text, ord bigint, "time" timestamp with time zone, event text, attempt integer, worker_id text, message text, requested_by text);

-- CREATE VIEW record (seq bigint, stamp bigint, created_at bigint, timeout_ms bigint, max_retries integer, max_crashes integer, priority smallint, extras bytea, payload bytea, queue text, kind text, idempotency_key text, progress text, history bytea, state smallint, attempts integer, crashes integer, retention_ms bigint, token bigint, worker text, claimed_at bigint, is_cancel_requested boolean, updated_at bigint, run_at bigint, started_at bigint, finished_at bigint, expires_at bigint);

-- CREATE VIEW task_states (seq bigint, type text, queue text, priority smallint, state text, attempts integer, crashes integer, created_at timestamp with time zone, run_at timestamp with time zone, claimed_at timestamp with time zone, started_at timestamp with time zone, completed_at timestamp with time zone);

-- CREATE VIEW tasks (seq bigint, id text, type text, queue text, priority text, state text, payload jsonb, payload_raw bytea, attempts integer, crashes integer, max_retries integer, max_crashes integer, result jsonb, result_raw bytea, error text, worker_id text, epoch text, progress jsonb, created_at timestamp with time zone, updated_at timestamp with time zone, run_at timestamp with time zone, claimed_at timestamp with time zone, started_at timestamp with time zone, completed_at timestamp with time zone, timeout numeric, deadline timestamp with time zone, idempotency_key text, tags jsonb, metadata jsonb, traceparent text, is_cancel_requested boolean);

-- CREATE VIEW workers (id text, name text, host text, pid bigint, version text, queues jsonb, slots bigint, slots_used bigint, state text, requested_state text, started_at timestamp with time zone, heartbeat_at timestamp with time zone, lease_expires_at timestamp with time zone, gone_at timestamp with time zone, is_leader boolean);

CREATE FUNCTION add_generation(wanted bigint, now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout=10s /* a body of 28 lines, da664dfd72f53fe49cc93a3f073741fe */;

CREATE FUNCTION as_jsonb(bytes bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE /* a body of 16 lines, c4f791a4e5625902a2e732655c7cfc89 */;

CREATE FUNCTION begin_rewrite(first bigint, past bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=100ms SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 27 lines, df703b4423a39407f2a9d0d1590c9e76 */;

CREATE FUNCTION cancel(id text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET enable_seqscan=off SET jit=off SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 41 lines, 69489c07b5ad35c691f3b925276e0bd0 */;

CREATE FUNCTION check_fields(what text, given jsonb, known text[]) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 12 lines, df9eba176bbba694a17470f505a9e7cd */;

CREATE FUNCTION check_key(what text, key text) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 9 lines, 3a45dff24f13246f8ef2d2f4a118afad */;

CREATE FUNCTION check_name(what text, name text) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 9 lines, 3da1f67d27e4bcf081645a053506db15 */;

CREATE FUNCTION check_value(what text, is_good boolean) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 6 lines, ede9025811d01ff07f2a67b2c9e03514 */;

CREATE FUNCTION clock(told bigint) RETURNS bigint
LANGUAGE sql VOLATILE /* a body of 3 lines, 3f83816b649836706690a16e747a2ba5 */;

CREATE FUNCTION complete(asked jsonb, output bytea, OUT outcome text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET enable_seqscan=off SET jit=off SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 44 lines, 0dbe7d957c468d1f5149d69bfbc23b7c */;

CREATE FUNCTION copy_rows(copy bigint, seqs bigint[], a bigint, b bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE /* a body of 14 lines, 14e09bb171f50b801deebd7c9d11073a */;

CREATE FUNCTION copy_standing(width bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 24 lines, 68eff4f6bf6462cca6fe70475ac2e94c */;

CREATE FUNCTION count_state(queue integer, priority smallint, state integer, by integer) RETURNS void
LANGUAGE sql VOLATILE /* a body of 8 lines, 7f1feeb156d19cc393bbb14b15fb9217 */;

CREATE FUNCTION depth_of(json text) RETURNS integer
LANGUAGE plpgsql IMMUTABLE /* a body of 11 lines, 0dd76e7f23e7b2c4efe8e794b93dcd80 */;

CREATE FUNCTION digest(VARIADIC parts bytea[]) RETURNS bytea
LANGUAGE sql IMMUTABLE /* a body of 5 lines, 9c5f17eb40d0eae3720c9eb03a1f923e */;

CREATE FUNCTION digest_number(digest bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE /* a body of 3 lines, 11366096722b8850d7aaf5761c200abf */;

CREATE FUNCTION draw() RETURNS bigint
LANGUAGE sql VOLATILE /* a body of 8 lines, 75840376edb21c2678449f4b00f162d1 */;

CREATE FUNCTION drop_generations(los bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=100ms SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 16 lines, f96862ab8c55541722558980f46befed */;

CREATE FUNCTION end_rewrite(most bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=100ms SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 37 lines, bfbf07ae0c7926bb34e34637d2a9f6b6 */;

CREATE FUNCTION enqueue(kind text, payload jsonb DEFAULT 'null'::jsonb, queue text DEFAULT 'default'::text, priority text DEFAULT 'normal'::text, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, idempotency_key text DEFAULT NULL::text, options jsonb DEFAULT '{}'::jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET IntervalStyle=postgres SET enable_seqscan=off SET extra_float_digits=1 SET jit=off SET search_path=windlass, pg_temp SET standard_conforming_strings=on /* not for PUBLIC */ /* a body of 85 lines, f9c2a6971b853b692b4e49b544e9e068 */;

CREATE FUNCTION free_key(wanted bigint, has_started boolean) RETURNS void
LANGUAGE sql VOLATILE /* a body of 5 lines, 336936b1f560c8d5a6d51ba1d955f3aa */;

CREATE FUNCTION freed_by_success(wanted bigint) RETURNS bytea
LANGUAGE plpgsql STABLE /* a body of 4 lines, 7d73d63d65a2afc87fb6d0af79f75fab */;

CREATE FUNCTION generations(now bigint) RETURNS TABLE(lo bigint, hi bigint, opened_at bigint, closed_at bigint, used bigint, pruned bigint, is_empty boolean, alive bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 29 lines, 46adf33c0fa48aa26c38f5d108abf12b */;

CREATE FUNCTION id_of(seq bigint, stamp bigint) RETURNS text
LANGUAGE sql IMMUTABLE /* a body of 6 lines, e521e02636dbd11c61bf727d2e092b05 */;

CREATE FUNCTION is_object(extras text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE /* a body of 6 lines, d255f6d881426d90941b99fa1d531b8e */;

CREATE FUNCTION last_error(history bytea) RETURNS text
LANGUAGE sql IMMUTABLE /* a body of 1 lines, d41d8cd98f00b204e9800998ecf8427e */;

CREATE FUNCTION lock_tasks() RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout=100ms /* a body of 6 lines, bd21eec054459dc2452e9e20e3b8da1a */;

CREATE FUNCTION make_generation(wanted bigint, told bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 8 lines, 4f1b94c4b2d685283c8f4a401830edfa */;

CREATE FUNCTION make_part(base text, number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 6 lines, caa0762488e0caa09c6885a75a61ef0f */;

CREATE FUNCTION mend_copy(most bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 29 lines, 34af65f5c3b17d8e1d0249a624c6f910 */;

CREATE FUNCTION moment(ms bigint) RETURNS timestamp with time zone
LANGUAGE sql IMMUTABLE /* a body of 3 lines, 428bbfe3ecc53577c3d8a76ebc551f68 */;

CREATE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 5 lines, d8e656f498ec4affbe987d2f45c4afb2 */;

CREATE FUNCTION note_ready() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path=windlass, pg_temp /* a body of 9 lines, c68ca165d6c5e88d353068f2d097c28b */;

CREATE FUNCTION note_taken() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path=windlass, pg_temp /* a body of 9 lines, cd51422b29b96731f594f6399bdfafc3 */;

CREATE FUNCTION open_generation(now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 16 lines, af5e5cc66bf4d00aae426ba0beabb760 */;

CREATE FUNCTION read_backoff(given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE /* a body of 35 lines, 74828b6454b88a3d12d5419d79de1eb3 */;

CREATE FUNCTION read_count(what text, given jsonb, standard integer) RETURNS integer
LANGUAGE plpgsql VOLATILE /* a body of 9 lines, 6443315d107379190e370da9bf4a4515 */;

CREATE FUNCTION read_duration(what text, given jsonb) RETURNS bigint
LANGUAGE plpgsql VOLATILE /* a body of 34 lines, a4b04ca2d1f438aa9bf78c356de39f5d */;

CREATE FUNCTION read_extras(options jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE /* a body of 43 lines, 3b8452549010fc0a33eb12d28c51d83b */;

CREATE FUNCTION read_instant(what text, given timestamp with time zone) RETURNS bigint
LANGUAGE plpgsql VOLATILE /* a body of 8 lines, eef9e77667be28ca6d90487eba483675 */;

CREATE FUNCTION read_text(what text, given jsonb) RETURNS text
LANGUAGE plpgsql VOLATILE /* a body of 6 lines, 34879e444c12d887ecf8cc0a3cfab5fb */;

CREATE FUNCTION read_time(what text, given jsonb) RETURNS bigint
LANGUAGE plpgsql VOLATILE /* a body of 16 lines, 7cd62e73273db4093ed9f138921059a6 */;

CREATE FUNCTION refuse(what text, why text) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 4 lines, 7e87c8e76c864ad881dd38ca1805faf1 */;

CREATE FUNCTION remembered(history bytea, entry jsonb) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE /* a body of 15 lines, ed9b46a200ba7b3de7fec064bce77448 */;

CREATE FUNCTION remove_over(wanted bigint) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 24 lines, fb4b8fc0b98110e2e06b0baf167445bc */;

CREATE FUNCTION reserve(wanted bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 14 lines, b7e618db519543ebe1ae5027573c75e6 */;

CREATE FUNCTION retry(id text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET enable_seqscan=off SET jit=off SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 58 lines, a4483b2004298d6e3ccc05204d93a4dc */;

CREATE FUNCTION rows_between(first bigint, last bigint) RETURNS SETOF task
LANGUAGE plpgsql STABLE /* a body of 4 lines, 12eed207e7942cd1c47420f7e9b1f48d */;

CREATE FUNCTION salt() RETURNS bigint
LANGUAGE sql STABLE /* a body of 3 lines, c26e8afcb98f163b8e9e7a1c5c3fc24d */;

CREATE FUNCTION seq_of(id text) RETURNS bigint
LANGUAGE sql IMMUTABLE /* a body of 6 lines, e02dd51b48adcd302931cf915cdde7bf */;

CREATE FUNCTION stamp_of(id text) RETURNS bigint
LANGUAGE sql IMMUTABLE /* a body of 5 lines, 8b10b052bd0fe3d9f13e37c7ca7430d1 */;

CREATE FUNCTION standing(a bigint, b bigint) RETURNS TABLE(seq bigint)
LANGUAGE sql STABLE /* a body of 22 lines, 835844a426f3897073c31674f726be7d */;

CREATE FUNCTION stands_below(b bigint) RETURNS bigint
LANGUAGE sql STABLE /* a body of 13 lines, af4576d685b71b19038444cd21534b07 */;

CREATE FUNCTION stands_from(a bigint) RETURNS bigint
LANGUAGE sql STABLE /* a body of 11 lines, 36605017ec063e4d873d0560514d8214 */;

CREATE FUNCTION submit(asked jsonb, payload bytea, OUT outcome text, OUT holder text) RETURNS record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET enable_seqscan=off SET jit=off SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 129 lines, 38381a8439547923fa55eb3acc56fe84 */;

CREATE FUNCTION take(wanted bigint, allowed integer, horizon bigint, OUT state smallint, OUT is_taken boolean, OUT at_position bigint, OUT at_since bigint, OUT at_token bigint, OUT at_worker integer, OUT at_claimed bigint, OUT at_finished bigint, OUT at_retention bigint, OUT at_took integer) RETURNS record
LANGUAGE plpgsql VOLATILE /* a body of 90 lines, 19f38af139683397ccfe228ac02f9f3a */;

CREATE FUNCTION task(id text) RETURNS SETOF tasks
LANGUAGE sql STABLE /* a body of 1 lines, d41d8cd98f00b204e9800998ecf8427e */;

CREATE FUNCTION task_events(id text) RETURNS SETOF events
LANGUAGE sql STABLE /* a body of 1 lines, d41d8cd98f00b204e9800998ecf8427e */;

CREATE FUNCTION tell(line text) RETURNS void
LANGUAGE sql VOLATILE /* a body of 3 lines, add7c98c10a252aa4a9adfda9a4227bf */;

CREATE FUNCTION use_brokers(names text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=1s SET search_path=windlass, pg_temp /* not for PUBLIC */ /* a body of 28 lines, 215d243b973e2862a48897a62a281c00 */;

CREATE FUNCTION watch_generation(number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE /* a body of 10 lines, 405dabaf36f904842ce0a5740bcb9101 */;

CREATE FUNCTION written(ms bigint) RETURNS text
LANGUAGE sql IMMUTABLE /* a body of 3 lines, f08f1010c6cb230f8fa2456fdef76983 */;
