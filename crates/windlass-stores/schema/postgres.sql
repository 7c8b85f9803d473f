-- The schema of the PostgreSQL store, version 2. Written by `cargo xtask schema`; do not edit.

CREATE SEQUENCE audit_seq AS bigint MINVALUE 1 START 1;

CREATE SEQUENCE generation_seq AS bigint MINVALUE 0 START 0;

CREATE SEQUENCE position_seq AS bigint MINVALUE 1 START 1;

CREATE SEQUENCE task_seq AS bigint MINVALUE 1 START 1;

CREATE SEQUENCE token_seq AS bigint MINVALUE 1 START 1;

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
  PRIMARY KEY (queue, priority)
);

CREATE TABLE deferred (
  seq bigint NOT NULL,
  run_at bigint NOT NULL,
  queue integer NOT NULL,
  lane smallint NOT NULL,
  bits smallint NOT NULL,
  is_retry boolean NOT NULL,
  PRIMARY KEY (seq)
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
  PRIMARY KEY (seq)
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
  PRIMARY KEY (token)
) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000);

CREATE TABLE meta (
  version integer NOT NULL
);

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

CREATE INDEX ready_order ON ready USING btree (queue, lane, "position");

CREATE INDEX uniq_until ON uniq USING btree (until) WHERE (until IS NOT NULL);

CREATE INDEX worker_alive ON worker USING btree (number) WHERE (gone_at IS NULL);

-- CREATE VIEW record (seq bigint, stamp bigint, created_at bigint, timeout_ms bigint, max_retries integer, max_crashes integer, priority smallint, extras bytea, payload bytea, queue text, kind text, idempotency_key text, progress text, history bytea, state smallint, attempts integer, crashes integer, retention_ms bigint, token bigint, worker text, claimed_at bigint, is_cancel_requested boolean, updated_at bigint, run_at bigint, started_at bigint, finished_at bigint, expires_at bigint);

CREATE FUNCTION add_generation(wanted bigint, now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout=10s AS $$
DECLARE
  g generation%ROWTYPE;
  base text;
  is_new bool := false;
BEGIN
  PERFORM pg_advisory_xact_lock('generation'::regclass::int8);
  SELECT * INTO g FROM generation AS x WHERE x.lo <= wanted AND x.hi > wanted;
  IF NOT FOUND THEN
    INSERT INTO generation (number, lo, hi, opened_at)
      VALUES (nextval('generation_seq'), (wanted >> 32) << 32, ((wanted >> 32) + 1) << 32, now)
      RETURNING * INTO g;
  END IF;
  FOREACH base IN ARRAY ARRAY['task', 'result', 'keyed'] LOOP
    IF to_regclass(format('%I', base || '_' || g.number)) IS NULL THEN
      PERFORM make_part(base, g.number);
      is_new := true;
    END IF;
    IF NOT (SELECT c.relispartition FROM pg_class AS c WHERE c.oid = format('%I', base || '_' || g.number)::regclass) THEN
      EXECUTE format(
        'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', base, base || '_' || g.number, g.lo, g.hi
      );
    END IF;
  END LOOP;
  IF is_new AND EXISTS (SELECT FROM rewrite AS r WHERE r.lo <= wanted AND r.hi > wanted) THEN
    PERFORM watch_generation(g.number);
  END IF;
END $$;

CREATE FUNCTION begin_rewrite(first bigint, past bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=100ms SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  g generation%ROWTYPE;
  copy int8;
  base text;
BEGIN
  PERFORM pg_advisory_xact_lock('generation'::regclass::int8);
  IF EXISTS (SELECT FROM rewrite)
    OR EXISTS (SELECT FROM generation AS x WHERE x.lo < past AND x.hi > first AND (x.closed_at IS NULL OR x.lo < first OR x.hi > past))
    OR NOT EXISTS (SELECT FROM generation AS x WHERE x.lo = first)
    OR NOT EXISTS (SELECT FROM generation AS x WHERE x.hi = past)
  THEN
    RETURN;
  END IF;
  copy := nextval('generation_seq');
  FOREACH base IN ARRAY ARRAY['task', 'result', 'keyed'] LOOP
    PERFORM make_part(base, copy);
    -- With this the copy can be attached without reading it.
    EXECUTE format(
      'ALTER TABLE %I ADD CONSTRAINT in_range CHECK (seq >= %s AND seq < %s)', base || '_' || copy, first, past
    );
  END LOOP;
  FOR g IN SELECT * FROM generation AS x WHERE x.lo >= first AND x.hi <= past ORDER BY x.lo LOOP
    PERFORM watch_generation(g.number);
  END LOOP;
  INSERT INTO rewrite (one, number, lo, hi, copied_to, copied) VALUES (1, copy, first, past, first, 0);
END $$;

CREATE FUNCTION clock(told bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(told, floor(extract(epoch FROM clock_timestamp()) * 1000)::int8)
$$;

CREATE FUNCTION copy_rows(copy bigint, seqs bigint[], a bigint, b bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  base text;
  tasks int8 := 0;
BEGIN
  FOREACH base IN ARRAY ARRAY['result', 'keyed', 'task'] LOOP
    EXECUTE format(
      'INSERT INTO %I SELECT x.* FROM unnest($1) AS u (seq) JOIN %I AS x ON x.seq = u.seq WHERE x.seq >= $2 AND x.seq < $3',
      base || '_' || copy, base
    ) USING seqs, a, b;
    GET DIAGNOSTICS tasks = ROW_COUNT;
  END LOOP;
  RETURN tasks;
END $$;

CREATE FUNCTION copy_standing(width bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  r rewrite%ROWTYPE;
  first int8;
  past int8;
  tasks int8;
BEGIN
  SELECT * INTO r FROM rewrite FOR UPDATE;
  IF NOT FOUND OR r.copied_to >= r.hi THEN
    RETURN false;
  END IF;
  first := stands_from(r.copied_to);
  IF first IS NULL OR first >= r.hi THEN
    UPDATE rewrite SET copied_to = r.hi;
    EXECUTE format('ANALYZE %I, %I, %I', 'task_' || r.number, 'result_' || r.number, 'keyed_' || r.number);
    RETURN false;
  END IF;
  first := (first >> 10) << 10;
  past := least(first + width, r.hi);
  -- What leaves its place after this was read is noted down, and mended.
  tasks := copy_rows(r.number, ARRAY(SELECT DISTINCT s.seq FROM standing(first, past) AS s), first, past);
  UPDATE rewrite SET copied_to = past, copied = r.copied + tasks;
  RETURN true;
END $$;

CREATE FUNCTION drop_generations(los bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=100ms SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  g generation%ROWTYPE;
  dropped int8 := 0;
BEGIN
  PERFORM lock_tasks();
  -- Seen after the lock: whoever had stored a task meanwhile has ended.
  FOR g IN SELECT * FROM generation AS x WHERE x.lo = ANY (los) AND x.closed_at IS NOT NULL ORDER BY x.lo LOOP
    CONTINUE WHEN stands_from(g.lo) < g.hi;
    CONTINUE WHEN EXISTS (SELECT FROM rewrite AS r WHERE r.lo <= g.lo AND r.hi > g.lo);
    EXECUTE format('DROP TABLE IF EXISTS %I, %I, %I', 'task_' || g.number, 'result_' || g.number, 'keyed_' || g.number);
    DELETE FROM generation AS x WHERE x.number = g.number;
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END $$;

CREATE FUNCTION end_rewrite(most bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET lock_timeout=100ms SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  r rewrite%ROWTYPE;
  g generation%ROWTYPE;
  base text;
  has_rows bool;
  opened int8;
  closed int8;
BEGIN
  PERFORM lock_tasks();
  SELECT * INTO r FROM rewrite FOR UPDATE;
  IF NOT FOUND OR r.copied_to < r.hi OR NOT mend_copy(most) THEN
    RETURN false;
  END IF;
  SELECT min(x.opened_at), max(x.closed_at) INTO opened, closed FROM generation AS x WHERE x.lo >= r.lo AND x.hi <= r.hi;
  FOR g IN SELECT * FROM generation AS x WHERE x.lo >= r.lo AND x.hi <= r.hi ORDER BY x.lo LOOP
    EXECUTE format('DROP TABLE IF EXISTS %I, %I, %I', 'task_' || g.number, 'result_' || g.number, 'keyed_' || g.number);
    DELETE FROM generation AS x WHERE x.number = g.number;
  END LOOP;
  EXECUTE format('SELECT EXISTS (SELECT FROM %I)', 'task_' || r.number) INTO has_rows;
  FOREACH base IN ARRAY ARRAY['task', 'result', 'keyed'] LOOP
    IF has_rows THEN
      EXECUTE format(
        'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', base, base || '_' || r.number, r.lo, r.hi
      );
      EXECUTE format('ALTER TABLE %I DROP CONSTRAINT in_range', base || '_' || r.number);
    ELSE
      EXECUTE format('DROP TABLE %I', base || '_' || r.number);
    END IF;
  END LOOP;
  IF has_rows THEN
    INSERT INTO generation (number, lo, hi, opened_at, closed_at, used)
      SELECT x.number, x.lo, x.hi, opened, closed, x.copied FROM rewrite AS x;
  END IF;
  DELETE FROM rewrite;
  RETURN true;
END $$;

CREATE FUNCTION freed_by_success(wanted bigint) RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT k.unique_digest FROM keyed AS k WHERE k.seq = wanted AND k.unique_for_ms IS NULL);
END $$;

CREATE FUNCTION generations(now bigint) RETURNS TABLE(lo bigint, hi bigint, opened_at bigint, closed_at bigint, used bigint, pruned bigint, is_empty boolean, alive bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  last int8;
  living int8;
BEGIN
  SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END INTO last FROM task_seq AS s;
  IF NOT EXISTS (SELECT FROM generation AS g WHERE g.lo <= last + 1 AND g.hi > last + 1) THEN
    PERFORM add_generation(last + 1, now);
  END IF;
  UPDATE generation AS g SET opened_at = now WHERE g.opened_at IS NULL;
  -- One that was not closed but left, since it is full or its closing was undone.
  UPDATE generation AS g
    SET closed_at = now,
      used = coalesce((SELECT max(t.seq) + 1 - g.lo FROM task AS t WHERE t.seq >= g.lo AND t.seq < g.hi), 0)
    WHERE g.closed_at IS NULL AND g.hi <= last + 1;
  SELECT sum(c.scheduled + c.pending + c.running + c.retrying + c.completed + c.dead_letter + c.cancelled)::int8
    INTO living
    FROM (
      SELECT x.scheduled, x.pending, x.running, x.retrying, x.completed, x.dead_letter, x.cancelled FROM counter AS x
      UNION ALL
      SELECT x.scheduled, x.pending, x.running, x.retrying, x.completed, x.dead_letter, x.cancelled FROM delta AS x
    ) AS c;
  RETURN QUERY
    SELECT g.lo, g.hi, g.opened_at, g.closed_at,
      CASE WHEN g.closed_at IS NULL THEN greatest(0, least(last + 1, g.hi) - greatest(g.lo, 1)) ELSE g.used END, g.pruned,
      g.closed_at IS NOT NULL AND coalesce(stands_from(g.lo) >= g.hi, true), coalesce(living, 0)
    FROM generation AS g
    ORDER BY g.lo;
END $$;

CREATE FUNCTION lock_tasks() RETURNS void
LANGUAGE plpgsql VOLATILE SET lock_timeout=100ms AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('generation'::regclass::int8);
  LOCK TABLE ONLY task IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE ONLY result, ONLY keyed IN ACCESS EXCLUSIVE MODE;
END $$;

CREATE FUNCTION make_generation(wanted bigint, told bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
BEGIN
  IF wanted < 0 OR wanted > (SELECT s.last_value FROM task_seq AS s) THEN
    RETURN false;
  END IF;
  PERFORM add_generation(wanted, clock(told));
  RETURN true;
END $$;

CREATE FUNCTION make_part(base text, number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  EXECUTE format(
    'CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (autovacuum_vacuum_insert_threshold = -1)', base || '_' || number, base
  );
END $$;

CREATE FUNCTION mend_copy(most bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  r rewrite%ROWTYPE;
  seqs int8[];
  base text;
  tasks int8;
BEGIN
  SELECT * INTO r FROM rewrite FOR UPDATE;
  IF NOT FOUND THEN
    RETURN true;
  END IF;
  WITH gone AS (
    DELETE FROM rewrite_change WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM rewrite_change AS c LIMIT most)) RETURNING seq
  )
  SELECT array_agg(DISTINCT g.seq) INTO seqs FROM gone AS g WHERE g.seq < r.copied_to;
  IF seqs IS NOT NULL THEN
    FOREACH base IN ARRAY ARRAY['result', 'keyed', 'task'] LOOP
      EXECUTE format('DELETE FROM %I WHERE seq = ANY ($1)', base || '_' || r.number) USING seqs;
      GET DIAGNOSTICS tasks = ROW_COUNT;
    END LOOP;
    seqs := ARRAY(
      SELECT u.seq FROM unnest(seqs) AS u (seq)
      WHERE EXISTS (SELECT FROM record AS x WHERE x.seq = u.seq AND x.state IS NOT NULL)
    );
    tasks := copy_rows(r.number, seqs, r.lo, r.copied_to) - tasks;
    UPDATE rewrite SET copied = r.copied + tasks;
  END IF;
  RETURN NOT EXISTS (SELECT FROM rewrite_change);
END $$;

CREATE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
BEGIN
  INSERT INTO rewrite_change (seq) VALUES (CASE TG_OP WHEN 'DELETE' THEN OLD.seq ELSE NEW.seq END);
  RETURN NULL;
END $$;

CREATE FUNCTION open_generation(now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE
  last int8;
  next int8;
BEGIN
  SELECT s.last_value INTO last FROM task_seq AS s;
  next := ((last >> 32) + 1) << 32;
  PERFORM add_generation(next, now);
  PERFORM pg_advisory_xact_lock('task_seq'::regclass::int8);
  SELECT s.last_value INTO last FROM task_seq AS s;
  -- Not undone with the transaction. If it is undone, the partitions are made by who needs them first.
  IF last < next THEN
    PERFORM setval('task_seq', next, false);
  END IF;
  UPDATE generation AS g SET closed_at = now, used = last - g.lo + 1 WHERE g.lo <= last AND g.hi > last AND g.hi <= next;
END $$;

CREATE FUNCTION reserve(wanted bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path=windlass, pg_temp /* not for PUBLIC */ AS $$
DECLARE first int8;
BEGIN
  PERFORM pg_advisory_xact_lock('task_seq'::regclass::int8);
  first := nextval('task_seq');
  IF wanted > 1 THEN
    PERFORM setval('task_seq', first + wanted - 1);
  END IF;
  RETURN first;
END $$;

CREATE FUNCTION rows_between(first bigint, last bigint) RETURNS SETOF task
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT x.* FROM task AS x WHERE x.seq BETWEEN first AND last;
END $$;

CREATE FUNCTION standing(a bigint, b bigint) RETURNS TABLE(seq bigint)
LANGUAGE sql STABLE AS $$
  SELECT s.seq
  FROM ready AS r
  CROSS JOIN LATERAL generate_series(greatest(r.lo, a), least(r.hi, b - 1)) AS s (seq)
  WHERE r.lo >= coalesce((SELECT x.lo FROM ready AS x WHERE x.lo <= a ORDER BY x.lo DESC LIMIT 1), a)
    AND r.lo < b AND r.hi >= a
  UNION ALL
  SELECT s.seq
  FROM lease AS l
  CROSS JOIN LATERAL unnest(l.ranges * int8multirange(int8range(a, b))) AS r
  CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s (seq)
  WHERE l.ranges && int8range(a, b)
  UNION ALL
  SELECT d.seq FROM deferred AS d WHERE d.seq >= a AND d.seq < b
  UNION ALL
  SELECT f.seq FROM fate AS f WHERE f.seq >= a AND f.seq < b AND f.state IS NOT NULL
  UNION ALL
  SELECT d.block * 1024 + u.o
  FROM done AS d
  CROSS JOIN LATERAL unnest(d.offsets) AS u (o)
  WHERE d.block >= a >> 10 AND d.block <= (b - 1) >> 10 AND d.block * 1024 + u.o >= a AND d.block * 1024 + u.o < b
$$;

CREATE FUNCTION stands_below(b bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT greatest(
    (SELECT least(x.hi, b - 1) FROM ready AS x WHERE x.lo < b ORDER BY x.lo DESC LIMIT 1),
    (SELECT max(least(upper(r), b) - 1) FROM lease AS l CROSS JOIN LATERAL unnest(l.ranges) AS r WHERE lower(r) < b),
    (SELECT x.seq FROM deferred AS x WHERE x.seq < b ORDER BY x.seq DESC LIMIT 1),
    (SELECT x.seq FROM fate AS x WHERE x.state = 5 AND x.seq < b ORDER BY x.seq DESC LIMIT 1),
    (SELECT x.seq FROM fate AS x WHERE x.state = 6 AND x.seq < b ORDER BY x.seq DESC LIMIT 1),
    (
      SELECT least(x.block * 1024 + 1023, b - 1) FROM done AS x
      WHERE x.block <= (b - 1) >> 10 ORDER BY x.block DESC LIMIT 1
    )
  )
$$;

CREATE FUNCTION stands_from(a bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT least(
    (SELECT a FROM (SELECT x.hi FROM ready AS x WHERE x.lo <= a ORDER BY x.lo DESC LIMIT 1) AS z WHERE z.hi >= a),
    (SELECT x.lo FROM ready AS x WHERE x.lo >= a ORDER BY x.lo LIMIT 1),
    (SELECT min(greatest(lower(r), a)) FROM lease AS l CROSS JOIN LATERAL unnest(l.ranges) AS r WHERE upper(r) > a),
    (SELECT x.seq FROM deferred AS x WHERE x.seq >= a ORDER BY x.seq LIMIT 1),
    (SELECT x.seq FROM fate AS x WHERE x.state = 5 AND x.seq >= a ORDER BY x.seq LIMIT 1),
    (SELECT x.seq FROM fate AS x WHERE x.state = 6 AND x.seq >= a ORDER BY x.seq LIMIT 1),
    (SELECT x.block * 1024 FROM done AS x WHERE x.block >= a >> 10 ORDER BY x.block LIMIT 1)
  )
$$;

CREATE FUNCTION take(wanted bigint, allowed integer, horizon bigint, OUT state smallint, OUT is_taken boolean, OUT at_position bigint, OUT at_since bigint, OUT at_token bigint, OUT at_worker integer, OUT at_claimed bigint, OUT at_finished bigint, OUT at_retention bigint, OUT at_took integer) RETURNS record
LANGUAGE plpgsql VOLATILE AS $$
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
      state := 2; at_token := r.token; at_worker := r.worker; at_claimed := r.claimed_at;
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

CREATE FUNCTION watch_generation(number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE base text;
BEGIN
  FOREACH base IN ARRAY ARRAY['task', 'result', 'keyed'] LOOP
    EXECUTE format(
      'CREATE OR REPLACE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION note_change()',
      base || '_' || number
    );
  END LOOP;
END $$;
