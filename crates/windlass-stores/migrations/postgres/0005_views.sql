-- Looking at tasks, calling them off and running them again, from SQL alone.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Bytes as JSON; NULL for what is none. This database's texts hold no NUL: it is shown as U+FFFD, and the rest as it is.
CREATE FUNCTION as_jsonb(bytes bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN convert_from(bytes, 'UTF8')::jsonb;
EXCEPTION
  WHEN untranslatable_character THEN
    BEGIN
      -- An escape begins after an even number of backslashes.
      RETURN regexp_replace(
        convert_from(bytes, 'UTF8'), E'(?<!\\\\)((\\\\\\\\)*)\\\\u0000', E'\\1\\\\ufffd', 'g'
      )::jsonb;
    EXCEPTION WHEN others THEN
      RETURN NULL;
    END;
  WHEN others THEN
    RETURN NULL;
END $$;

-- The last thing that a handler said of a failure. Read here, as `task` is: it calls a function of ours.
CREATE FUNCTION last_error(history bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT
RETURN (
  SELECT e.error #>> '{}'
  FROM jsonb_path_query(as_jsonb(history), '$[*].error') WITH ORDINALITY AS e (error, ord)
  WHERE jsonb_typeof(e.error) <> 'null'
  ORDER BY e.ord DESC
  LIMIT 1
);

-- A timeline with one more entry, within its bounds. One that cannot be read is begun anew.
CREATE FUNCTION remembered(history bytea, entry jsonb) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  before json := '[]';
  entries text;
BEGIN
  BEGIN
    before := coalesce(convert_from(history, 'UTF8')::json, '[]');
    SELECT string_agg(e.entry::text, ',' ORDER BY e.ord) INTO entries
    FROM json_array_elements(before) WITH ORDINALITY AS e (entry, ord)
    WHERE e.ord <> 501 OR json_array_length(before) < 1000;
  EXCEPTION WHEN others THEN
    entries := NULL;
  END;
  RETURN convert_to('[' || coalesce(entries || ',', '') || entry::text || ']', 'UTF8');
END $$;

-- Frees a key that the end of its task frees.
CREATE FUNCTION free_key(wanted int8, has_started bool) RETURNS void LANGUAGE sql AS $$
  DELETE FROM uniq AS x
  USING keyed AS y
  WHERE y.seq = wanted AND x.digest = y.unique_digest AND x.seq = wanted AND (y.unique_for_ms IS NULL OR NOT has_started)
$$;

-- Calls a task off: `cancelled` at once when it waits, `requested` when it runs (its handler is told, and decides),
-- `finished` when there is nothing to call off, `not_found`. In the caller's transaction: commit soon, since until
-- then workers pass over the tasks that were submitted together with this one.
CREATE FUNCTION cancel(id text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
  wanted int8 := seq_of(id);
  now_ms int8 := clock(NULL);
  asked jsonb := jsonb_build_object('at', written(now_ms), 'by', session_user);
  was record;
  t record;
BEGIN
  PERFORM 1 FROM task AS x WHERE x.seq = wanted AND x.stamp = stamp_of(cancel.id);
  IF NOT FOUND THEN RETURN 'not_found'; END IF;
  was := take(wanted, 11, now_ms);
  IF was.state IS NULL THEN RETURN 'not_found'; END IF;
  IF was.state > 3 THEN RETURN 'finished'; END IF;
  SELECT x.queue, x.priority, x.retention_ms, coalesce(f.attempts, 0) AS attempts, coalesce(f.crashes, 0) AS crashes,
    coalesce(f.cancel, false) AS is_requested, f.history, coalesce(f.retention_ms, x.retention_ms) AS kept_ms,
    (SELECT w.id FROM worker AS w WHERE w.number = was.at_worker) AS worker
  INTO t
  FROM task AS x
  LEFT JOIN fate AS f ON f.seq = x.seq
  WHERE x.seq = wanted;
  IF was.state = 2 THEN
    IF NOT t.is_requested THEN
      INSERT INTO fate AS f (seq, attempts, crashes, updated_at, cancel, history)
        VALUES (wanted, 0, 0, now_ms, true, remembered(t.history, asked || '{"what": "cancel_requested"}'))
      ON CONFLICT (seq) DO UPDATE SET cancel = true, updated_at = excluded.updated_at, history = excluded.history;
      PERFORM tell('w' || t.worker);
    END IF;
    RETURN 'requested';
  END IF;
  INSERT INTO fate AS f (seq, state, attempts, crashes, finished_at, expires_at, updated_at, retention_ms, history)
    VALUES (
      wanted, 6, 0, 0, now_ms, least(now_ms + least(t.kept_ms, 253402128000000), 253402128000000), now_ms, t.kept_ms,
      remembered(t.history, asked || '{"what": "cancelled"}')
    )
  ON CONFLICT (seq) DO UPDATE SET
    state = excluded.state, finished_at = excluded.finished_at, expires_at = excluded.expires_at, cancel = false,
    updated_at = excluded.updated_at, retention_ms = excluded.retention_ms, history = excluded.history;
  PERFORM free_key(wanted, t.attempts > 0 OR t.crashes > 0);
  PERFORM count_state(t.queue, t.priority, was.state, -1), count_state(t.queue, t.priority, 6, 1);
  RETURN 'cancelled';
END $$;

-- Runs a finished task again from the start, or one that waits for its time now: `pending`. `refused` for one
-- that waits for a worker or runs, `not_found`.
CREATE FUNCTION retry(id text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
  wanted int8 := seq_of(id);
  now_ms int8 := clock(NULL);
  was record;
  t record;
  told bytea;
BEGIN
  PERFORM 1 FROM task AS x WHERE x.seq = wanted AND x.stamp = stamp_of(retry.id);
  IF NOT FOUND THEN RETURN 'not_found'; END IF;
  was := take(wanted, 121, now_ms);
  IF was.state IS NULL THEN RETURN 'not_found'; END IF;
  IF NOT was.is_taken THEN RETURN 'refused'; END IF;
  SELECT x.queue, x.priority, q.name AS queue_name, f.attempts, f.crashes, f.history,
    coalesce(was.at_retention, f.retention_ms, x.retention_ms) AS kept_ms,
    (SELECT w.id FROM worker AS w WHERE w.number = was.at_worker) AS worker,
    EXISTS (SELECT FROM keyed AS y WHERE y.seq = x.seq AND y.unique_digest IS NOT NULL AND y.unique_for_ms IS NULL) AS has_key
  INTO t
  FROM task AS x
  JOIN queue AS q ON q.id = x.queue
  LEFT JOIN fate AS f ON f.seq = x.seq
  WHERE x.seq = wanted;
  told := t.history;
  IF was.state = 4 THEN
    told := remembered(told, jsonb_build_object(
      'what', 'completed', 'at', written(was.at_finished), 'run', jsonb_build_object(
        'attempt', coalesce(t.attempts, 0) + 1, 'epoch', was.at_token::text, 'worker', t.worker,
        'claimed_at', written(was.at_claimed)
      )
    ));
  END IF;
  told := remembered(told, jsonb_build_object('what', 'rerun', 'at', written(now_ms), 'by', session_user));
  IF was.state > 3 THEN
    t.attempts := 0;
    t.crashes := 0;
  END IF;
  INSERT INTO fate AS f (
    seq, state, attempts, crashes, token, applied, worker, claimed_at, started_at, updated_at, retention_ms, history
  ) VALUES (
    wanted, NULL, coalesce(t.attempts, 0), coalesce(t.crashes, 0), was.at_token, was.at_token, was.at_worker,
    was.at_claimed, was.at_finished - nullif(was.at_took, -1), now_ms, t.kept_ms, told
  )
  ON CONFLICT (seq) DO UPDATE SET
    state = NULL, attempts = excluded.attempts, crashes = excluded.crashes, cancel = false,
    token = coalesce(excluded.token, f.token), applied = coalesce(excluded.applied, f.applied),
    worker = coalesce(excluded.worker, f.worker), claimed_at = coalesce(excluded.claimed_at, f.claimed_at),
    started_at = coalesce(excluded.started_at, f.started_at), finished_at = NULL, expires_at = NULL,
    updated_at = excluded.updated_at, retention_ms = excluded.retention_ms, history = excluded.history;
  IF was.state = 4 THEN DELETE FROM result AS x WHERE x.seq = wanted; END IF;
  DELETE FROM progress AS x WHERE x.seq = wanted;
  INSERT INTO ready (position, lo, hi, since, queue, lane, bits) VALUES (
    nextval('position_seq'), wanted, wanted, now_ms, t.queue, t.priority * 2 + (coalesce(t.crashes, 0) >= 2)::int4,
    1 + CASE WHEN t.has_key THEN 2 ELSE 0 END
  );
  PERFORM count_state(t.queue, t.priority, was.state, -1), count_state(t.queue, t.priority, 1, 1);
  PERFORM tell('q' || t.queue_name);
  RETURN 'pending';
END $$;

-- Every task that is kept, a row each, with the names of the HTTP API. Look one up by `task(id)`, or by
-- `seq = seq_of(id)`: an id is made of columns and has no index of its own, so that `id = …` reads the whole table.
CREATE VIEW tasks AS
SELECT r.seq, id_of(r.seq, r.stamp) AS id, r.kind AS type, r.queue,
  (ARRAY['low', 'normal', 'high', 'critical'])[r.priority + 1] AS priority,
  (ARRAY['scheduled', 'pending', 'running', 'retrying', 'completed', 'dead_letter', 'cancelled'])[r.state + 1] AS state,
  as_jsonb(r.payload) AS payload, r.payload AS payload_raw, r.attempts, r.crashes, r.max_retries, r.max_crashes,
  as_jsonb(x.output) AS result, x.output AS result_raw, last_error(r.history) AS error, r.worker AS worker_id,
  r.token::text AS epoch, as_jsonb(convert_to(r.progress, 'UTF8')) AS progress, moment(r.created_at) AS created_at,
  moment(r.updated_at) AS updated_at, moment(r.run_at) AS run_at, moment(r.claimed_at) AS claimed_at,
  moment(r.started_at) AS started_at, moment(r.finished_at) AS completed_at, r.timeout_ms / 1000.0 AS timeout,
  (e.extras ->> 'deadline')::timestamptz AS deadline, r.idempotency_key,
  coalesce(e.extras -> 'tags', '[]') AS tags, coalesce(e.extras -> 'metadata', '{}') AS metadata,
  e.extras ->> 'traceparent' AS traceparent, r.is_cancel_requested
FROM record AS r
LEFT JOIN LATERAL (SELECT z.output FROM result AS z WHERE z.seq = r.seq LIMIT 1) AS x ON true
CROSS JOIN LATERAL (SELECT CASE WHEN r.extras <> '' THEN as_jsonb(r.extras) END AS extras) AS e
WHERE r.state IS NOT NULL AND (r.expires_at IS NULL OR r.expires_at > (SELECT clock(NULL)));

-- One task, by its id; quick.
CREATE FUNCTION task(id text) RETURNS SETOF tasks LANGUAGE sql STABLE
-- Read here, under this search path, and not when it is called; so it also stays open to the planner.
BEGIN ATOMIC
  SELECT t.* FROM tasks AS t WHERE t.seq = seq_of(task.id) AND t.id = task.id;
END;

-- How many tasks are in each state, by queue and priority; quick however many there are.
CREATE VIEW counts AS
SELECT q.name AS queue, (ARRAY['low', 'normal', 'high', 'critical'])[c.priority + 1] AS priority,
  sum(c.scheduled)::int8 AS scheduled, sum(c.pending)::int8 AS pending, sum(c.running)::int8 AS running,
  sum(c.retrying)::int8 AS retrying, sum(c.completed)::int8 AS completed, sum(c.dead_letter)::int8 AS dead_letter,
  sum(c.cancelled)::int8 AS cancelled
FROM (
  SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled FROM counter
  UNION ALL
  SELECT queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled FROM delta
) AS c
JOIN queue AS q ON q.id = c.queue
GROUP BY q.name, c.priority;

REVOKE ALL ON FUNCTION cancel(text), retry(text) FROM PUBLIC;
