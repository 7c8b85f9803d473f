-- Tasks from SQL alone: `enqueue`, for triggers, psql and any language. It takes what the HTTP API takes, under
-- the same names, refuses what that refuses, and says why. Texts with a backslash are written E'…', which mean the same
-- whatever `standard_conforming_strings` is where a function is read.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Refuses what someone asked for.
CREATE FUNCTION refuse(what text, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%: %', what, why USING ERRCODE = 'invalid_parameter_value';
END $$;

CREATE FUNCTION check_name(what text, name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF name IS NULL OR name COLLATE "C" !~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$' THEN
    PERFORM refuse(
      what || ' ' || coalesce(quote_literal(left(name, 128)), 'NULL'),
      'use 1 to 128 letters, digits or _ . : - and start with a letter or digit'
    );
  END IF;
END $$;

CREATE FUNCTION check_key(what text, key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF octet_length(key) NOT BETWEEN 1 AND 255 THEN
    PERFORM refuse(what, 'must have 1 to 255 bytes');
  END IF;
  IF key ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
    PERFORM refuse(what, 'must not hold control characters');
  END IF;
END $$;

-- Refuses fields that nobody knows.
CREATE FUNCTION check_fields(what text, given jsonb, known text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  strange text;
BEGIN
  IF jsonb_typeof(given) <> 'object' THEN
    PERFORM refuse(what, 'must be an object');
  END IF;
  SELECT k INTO strange FROM jsonb_object_keys(given) AS k WHERE k <> ALL (known) ORDER BY k LIMIT 1;
  IF FOUND THEN
    PERFORM refuse(what, format('unknown field %I; known: %s', strange, array_to_string(known, ', ')));
  END IF;
END $$;

-- Reads a duration (`"30s"`, `"5m"`, `"PT30S"` or a number of seconds), in ms, rounded up. NULL for none.
CREATE FUNCTION read_duration(what text, given jsonb) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
  seconds numeric;
BEGIN
  CASE jsonb_typeof(given)
    WHEN 'number' THEN seconds := given::numeric;
    WHEN 'string' THEN
      BEGIN
        seconds := (given #>> '{}')::numeric;
      EXCEPTION WHEN others THEN
        BEGIN
          -- Months and years are no durations: they have no length of their own.
          IF extract(year FROM (given #>> '{}')::interval) <> 0 OR extract(month FROM (given #>> '{}')::interval) <> 0 THEN
            RAISE EXCEPTION 'months';
          END IF;
          seconds := extract(epoch FROM (given #>> '{}')::interval);
        EXCEPTION WHEN others THEN
          PERFORM refuse(what, 'not a duration: ' || left(given::text, 100));
        END;
      END;
    WHEN 'null' THEN RETURN NULL;
    ELSE
      IF given IS NULL THEN RETURN NULL; END IF;
      PERFORM refuse(what, 'must be a duration ("30s", "5m", "PT30S" or seconds)');
  END CASE;
  IF seconds < 0 OR seconds = 'NaN' THEN
    PERFORM refuse(what, 'must not be negative');
  END IF;
  -- What 64 bits hold, as everywhere.
  IF seconds >= 18446744073709551616 THEN
    PERFORM refuse(what, 'not a duration: ' || left(given::text, 100));
  END IF;
  RETURN least(ceil(seconds * 1000), 9223372036854775807);
END $$;

CREATE FUNCTION read_count(what text, given jsonb, standard int4) RETURNS int4 LANGUAGE plpgsql AS $$
BEGIN
  IF given IS NULL OR jsonb_typeof(given) = 'null' THEN RETURN standard; END IF;
  IF jsonb_typeof(given) <> 'number' OR given::numeric <> trunc(given::numeric) OR given::numeric NOT BETWEEN 0 AND 1000000
  THEN
    PERFORM refuse(what, 'must be a whole number from 0 to 1000000');
  END IF;
  RETURN given::int4;
END $$;

CREATE FUNCTION read_text(what text, given jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF given IS NULL OR jsonb_typeof(given) = 'null' THEN RETURN NULL; END IF;
  IF jsonb_typeof(given) <> 'string' THEN PERFORM refuse(what, 'must be a string'); END IF;
  RETURN given #>> '{}';
END $$;

-- An instant as the timelines and the API write it.
CREATE FUNCTION written(ms int8) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT to_char(moment(ms) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- The ms of an instant; a fraction rounds up, so that nothing is early. Refuses what cannot be written everywhere: the
-- last instant is one that is in the year 9999 in every zone.
CREATE FUNCTION read_instant(what text, given timestamptz) RETURNS int8 LANGUAGE plpgsql AS $$
BEGIN
  IF given IS NULL THEN RETURN NULL; END IF;
  IF NOT isfinite(given) OR given > timestamptz '9999-12-30 22:00:00.999+00' THEN
    PERFORM refuse(what, format('%s is not a time before 9999-12-30T22:00:01Z', given));
  END IF;
  RETURN ceil(extract(epoch FROM given) * 1000);
END $$;

-- Reads an instant, as text that names its zone.
CREATE FUNCTION read_time(what text, given jsonb) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE
  told text := read_text(what, given);
  instant timestamptz;
BEGIN
  IF told IS NULL THEN RETURN NULL; END IF;
  IF told !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$' THEN
    PERFORM refuse(what, 'use RFC 3339, as 2026-01-31T12:00:00Z');
  END IF;
  BEGIN
    instant := told::timestamptz;
  EXCEPTION WHEN others THEN
    PERFORM refuse(what, 'not a time: ' || told);
  END;
  RETURN read_instant(what, instant);
END $$;

-- How deep JSON is nested; a plain value is 0 deep. Each round takes the innermost brackets away.
CREATE FUNCTION depth_of(json text) RETURNS int4 LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  brackets text := regexp_replace(regexp_replace(json, E'"(\\\\.|[^"\\\\])*"', '', 'g'), '[^][{}]', '', 'g');
  depth int4 := 0;
BEGIN
  WHILE brackets <> '' AND depth < 1000 LOOP
    brackets := replace(replace(brackets, '[]', ''), '{}', '');
    depth := depth + 1;
  END LOOP;
  RETURN depth;
END $$;

-- The delays before retries, as a task keeps them.
CREATE FUNCTION read_backoff(given jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  shape text;
  used text[];
  read jsonb := '{}';
  field text;
  amount numeric;
BEGIN
  PERFORM check_fields('retry', given, ARRAY['shape', 'initial', 'factor', 'max', 'step', 'jitter']);
  given := jsonb_strip_nulls(given);
  shape := coalesce(read_text('retry.shape', given -> 'shape'), 'exponential');
  used := CASE shape
    WHEN 'exponential' THEN ARRAY['initial', 'factor', 'max', 'jitter']
    WHEN 'linear' THEN ARRAY['step', 'max', 'jitter']
    WHEN 'fixed' THEN ARRAY['initial', 'jitter']
  END;
  IF used IS NULL THEN PERFORM refuse('retry.shape', 'use exponential, linear or fixed'); END IF;
  PERFORM check_fields('retry of the shape ' || shape, given - 'shape', used);
  FOREACH field IN ARRAY used LOOP
    IF field IN ('factor', 'jitter') THEN
      IF jsonb_typeof(given -> field) <> 'number' THEN PERFORM refuse('retry.' || field, 'must be a number'); END IF;
      amount := coalesce((given -> field)::numeric, CASE field WHEN 'factor' THEN 2 ELSE 0.1 END);
      IF field = 'factor' AND amount NOT BETWEEN 1e-300 AND 1e300 THEN
        PERFORM refuse('retry.factor', 'use a number above 0 and not beyond all measure');
      END IF;
      IF field = 'jitter' AND amount NOT BETWEEN 0 AND 1 THEN PERFORM refuse('retry.jitter', 'use 0 to 1'); END IF;
    ELSE
      amount := coalesce(
        read_duration('retry.' || field, given -> field) / 1000.0, CASE field WHEN 'max' THEN 300 ELSE 1 END
      );
    END IF;
    read := read || jsonb_build_object(field, amount::float8);
  END LOOP;
  RETURN read || jsonb_build_object('shape', shape);
END $$;

-- What most tasks do without, as a task keeps it; empty for nothing.
CREATE FUNCTION read_extras(options jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  extras jsonb := '{}';
  tag text;
  told text;
BEGIN
  IF options ? 'deadline' THEN
    extras := extras || jsonb_build_object('deadline', written(read_time('deadline', options -> 'deadline')));
  END IF;
  IF options ? 'retry' THEN
    extras := extras || jsonb_build_object('backoff', read_backoff(options -> 'retry'));
  END IF;
  IF options ? 'tags' THEN
    IF jsonb_typeof(options -> 'tags') <> 'array' THEN PERFORM refuse('tags', 'must be an array'); END IF;
    IF jsonb_array_length(options -> 'tags') > 32 THEN PERFORM refuse('tags', 'at most 32 tags'); END IF;
    FOR tag IN SELECT read_text('tags', t) FROM jsonb_array_elements(options -> 'tags') AS t LOOP
      PERFORM check_name('tag', tag);
    END LOOP;
    IF jsonb_array_length(options -> 'tags') > 0 THEN
      extras := extras || jsonb_build_object('tags', options -> 'tags');
    END IF;
  END IF;
  IF options ? 'metadata' THEN
    IF jsonb_typeof(options -> 'metadata') <> 'object' THEN PERFORM refuse('metadata', 'must be an object'); END IF;
    IF EXISTS (SELECT FROM jsonb_each(options -> 'metadata') AS m WHERE jsonb_typeof(m.value) <> 'string') THEN
      PERFORM refuse('metadata', 'must have strings as values');
    END IF;
    IF (SELECT count(*) > 64 OR coalesce(sum(octet_length(m.key) + octet_length(m.value #>> '{}')), 0) > 16384
        FROM jsonb_each(options -> 'metadata') AS m)
    THEN
      PERFORM refuse('metadata', 'at most 64 entries and 16384 bytes');
    END IF;
    IF options -> 'metadata' <> '{}' THEN
      extras := extras || jsonb_build_object('metadata', options -> 'metadata');
    END IF;
  END IF;
  told := read_text('traceparent', options -> 'traceparent');
  IF told IS NOT NULL THEN
    PERFORM check_key('traceparent', told);
    extras := extras || jsonb_build_object('traceparent', told);
  END IF;
  RETURN CASE WHEN extras = '{}' THEN '' ELSE extras::text END;
END $$;

-- A number for one task, drawn without waiting for anybody's transaction: `reserve` would hold its lock until
-- the end of this one. Taken and given back in one expression, between whose parts nothing interrupts.
CREATE FUNCTION draw() RETURNS int8 LANGUAGE sql AS $$
  SELECT d.seq
  FROM (
    SELECT pg_advisory_lock('task_seq'::regclass::int8), nextval('task_seq') AS seq,
      pg_advisory_unlock('task_seq'::regclass::int8)
    OFFSET 0
  ) AS d
$$;

-- Submits a task in the caller's transaction; answers its id. See docs/postgres.md for the options.
CREATE FUNCTION enqueue(
  kind text, payload jsonb DEFAULT 'null', queue text DEFAULT 'default', priority text DEFAULT 'normal',
  run_at timestamptz DEFAULT NULL, idempotency_key text DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off SET intervalstyle = postgres
SET standard_conforming_strings = on SET extra_float_digits = 1 AS $$
DECLARE
  body text := coalesce(payload, 'null')::text;
  asked jsonb;
  level int2;
  wish jsonb := coalesce(options, '{}');
  rule jsonb;
  timeout_ms int8;
  seq int8;
  stamp int8 := clock(NULL);
  queue_id int4;
  kind_id int4;
  told record;
BEGIN
  -- NULL stands for the default, in arguments as in options.
  queue := coalesce(queue, 'default');
  priority := coalesce(priority, 'normal');
  PERFORM check_name('task type', kind), check_name('queue name', queue);
  PERFORM check_key('idempotency key', idempotency_key);
  PERFORM check_fields('options', wish, ARRAY[
    'delay', 'max_retries', 'max_crashes', 'timeout', 'deadline', 'retry', 'unique', 'retention', 'tags', 'metadata',
    'traceparent', 'quiet'
  ]);
  SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}') INTO wish
  FROM jsonb_each(wish) AS o
  WHERE jsonb_typeof(o.value) <> 'null';
  rule := jsonb_strip_nulls(wish -> 'unique');
  IF octet_length(body) > 1048576 THEN
    PERFORM refuse('payload', format('has %s bytes, at most 1048576 allowed', octet_length(body)));
  END IF;
  IF depth_of(body) > 64 THEN PERFORM refuse('payload', 'is nested too deep, at most 64 allowed'); END IF;
  level := coalesce(
    array_position(ARRAY['low', 'normal', 'high', 'critical'], priority),
    array_position(ARRAY['0', '1', '2', '3'], priority)
  ) - 1;
  IF level IS NULL THEN
    PERFORM refuse('priority ' || quote_literal(priority), 'use critical, high, normal or low');
  END IF;
  IF run_at IS NOT NULL AND wish ? 'delay' THEN PERFORM refuse('run_at', 'give run_at or delay, not both'); END IF;
  timeout_ms := coalesce(read_duration('timeout', wish -> 'timeout'), 300000);
  IF timeout_ms = 0 THEN PERFORM refuse('timeout', 'must be longer than zero'); END IF;
  IF rule IS NOT NULL THEN
    PERFORM check_fields('unique', rule, ARRAY['key', 'for', 'until', 'on_conflict']);
    PERFORM check_key('unique.key', read_text('unique.key', rule -> 'key'));
    IF (rule ? 'for') = (rule ? 'until') THEN PERFORM refuse('unique', 'needs for, or until: "finished"'); END IF;
    IF rule ? 'until' AND rule -> 'until' <> '"finished"' THEN PERFORM refuse('unique.until', 'use "finished"'); END IF;
    IF coalesce(rule ->> 'on_conflict', 'reject') NOT IN ('reject', 'return') THEN
      PERFORM refuse('unique.on_conflict', 'use reject or return');
    END IF;
  END IF;
  IF jsonb_typeof(wish -> 'quiet') <> 'boolean' THEN PERFORM refuse('quiet', 'must be true or false'); END IF;

  -- A name that is new is made here, and others who use it for the first time wait for this transaction.
  SELECT q.id INTO queue_id FROM queue AS q WHERE q.name = enqueue.queue;
  IF NOT FOUND THEN
    INSERT INTO queue (name) VALUES (enqueue.queue) ON CONFLICT (name) DO UPDATE SET name = excluded.name
      RETURNING id INTO queue_id;
  END IF;
  SELECT k.id INTO kind_id FROM kind AS k WHERE k.name = enqueue.kind;
  IF NOT FOUND THEN
    INSERT INTO kind (name) VALUES (enqueue.kind) ON CONFLICT (name) DO UPDATE SET name = excluded.name
      RETURNING id INTO kind_id;
  END IF;
  seq := draw();
  asked := jsonb_build_object(
    'identity', (SELECT i.id FROM identity AS i WHERE i.one = 1), 'seq', seq, 'stamp', stamp, 'queue', queue_id, 'kind', kind_id,
    'queue_name', enqueue.queue, 'kind_name', enqueue.kind, 'priority', level,
    'max_retries', read_count('max_retries', wish -> 'max_retries', 3),
    'max_crashes', read_count('max_crashes', wish -> 'max_crashes', 3),
    'timeout_ms', timeout_ms, 'retention_ms', coalesce(read_duration('retention', wish -> 'retention'), 86400000),
    'extras', read_extras(wish), 'run_at', read_instant('run_at', run_at),
    'delay_ms', read_duration('delay', wish -> 'delay'), 'idempotency_key', idempotency_key,
    'unique_key', rule ->> 'key', 'is_unique', rule IS NOT NULL,
    'unique_for_ms', read_duration('unique.for', rule -> 'for'),
    'returns_holder', coalesce(rule ->> 'on_conflict' = 'return', false),
    'is_quiet', coalesce((wish -> 'quiet')::bool, false)
  );
  told := submit(asked, convert_to(body, 'UTF8'));
  IF told.outcome = 'conflict' THEN
    RAISE EXCEPTION 'the unique key is held by task %', told.holder USING ERRCODE = 'unique_violation';
  ELSIF told.outcome = 'different' THEN
    PERFORM refuse('idempotency key', 'was used for a different task, ' || told.holder);
  END IF;
  RETURN coalesce(told.holder, id_of(seq, stamp));
END $$;

REVOKE ALL ON FUNCTION enqueue(text, jsonb, text, text, timestamptz, text, jsonb) FROM PUBLIC;
