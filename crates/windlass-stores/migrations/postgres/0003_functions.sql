-- Tasks inside the transactions of applications, and from SQL alone. These functions work under any search
-- path of the caller's, and with the rights of their owner: whoever may call one needs no right to a table.

-- Kept with each function below. The temporary schema is last: no table of a caller's may stand in for ours.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Tells this schema from any other, in whatever database: a task must not end up in a stranger's.
CREATE TABLE identity (
  one int2 PRIMARY KEY CHECK (one = 1),
  id  text NOT NULL
);
INSERT INTO identity (one, id) VALUES (1, gen_random_uuid()::text);

-- The digest of a key, as the Rust side makes it: each part with its length before it. NULL if one is.
CREATE FUNCTION digest(VARIADIC parts bytea[]) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT substr(sha256(string_agg(int8send(octet_length(u.part)::int8) || u.part, ''::bytea ORDER BY u.ord)), 1, 16)
  FROM unnest(parts) WITH ORDINALITY AS u (part, ord)
  HAVING count(*) = count(u.part)
$$;

CREATE FUNCTION digest_number(digest bytea) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT ('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::int8
$$;

-- Sets this schema's locks and notifications apart from others'.
CREATE FUNCTION salt() RETURNS int8 LANGUAGE sql STABLE AS $$
  SELECT digest_number(digest('schema', convert_to(current_schema(), 'UTF8')))
$$;

-- Wakes workers when the transaction commits. Equal notifications of one transaction are one.
CREATE FUNCTION tell(line text) RETURNS void LANGUAGE sql AS $$
  SELECT pg_notify('windlass_' || lpad(to_hex(salt()), 16, '0'), E'\n' || line)
$$;

-- The id of a task: a UUID of version 8 that holds the time in its id and its number.
CREATE FUNCTION id_of(seq int8, stamp int8) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT substr(s.hex, 1, 8) || '-' || substr(s.hex, 9, 4) || '-8000-' || substr(q.hex, 1, 4) || '-' || substr(q.hex, 5)
  FROM
    (SELECT lpad(to_hex(stamp & 281474976710655), 12, '0') AS hex) AS s,
    (SELECT lpad(to_hex((seq & 4611686018427387903) | (-9223372036854775808)), 16, '0') AS hex) AS q
$$;

-- The number in an id; NULL for what is no id of ours.
CREATE FUNCTION seq_of(id text) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE
    WHEN id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-8000-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
    THEN ('x' || substr(id, 20, 4) || substr(id, 25))::bit(64)::int8 & 4611686018427387903
  END
$$;

-- The time in an id.
CREATE FUNCTION stamp_of(id text) RETURNS int8 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE
    WHEN seq_of(id) IS NOT NULL THEN ('x' || lpad(substr(id, 1, 8) || substr(id, 10, 4), 16, '0'))::bit(64)::int8
  END
$$;

-- An instant of the store's.
CREATE FUNCTION moment(ms int8) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT timestamptz 'epoch' + ms * interval '1 millisecond'
$$;

-- Removes a finished task whose retention is over, before whoever prunes comes by.
CREATE FUNCTION remove_over(wanted int8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  was record;
  kept record;
BEGIN
  was := take(wanted, 127, -9223372036854775808);
  IF NOT was.is_taken THEN RETURN; END IF;
  SELECT t.queue, t.priority, k.name AS kind, y.idempotency_key, y.unique_digest, y.unique_for_ms INTO kept
  FROM task AS t
  LEFT JOIN kind AS k ON k.id = t.kind
  LEFT JOIN keyed AS y ON y.seq = t.seq
  WHERE t.seq = wanted;
  PERFORM count_state(kept.queue, kept.priority, was.state, -1);
  DELETE FROM uniq AS x
  WHERE x.seq = wanted AND (
    x.digest = digest('idempotency', convert_to(kept.kind, 'UTF8'), convert_to(kept.idempotency_key, 'UTF8'))
    OR (x.digest = kept.unique_digest AND kept.unique_for_ms IS NULL)
  );
  DELETE FROM fate AS x WHERE x.seq = wanted;
  DELETE FROM keyed AS x WHERE x.seq = wanted;
  DELETE FROM result AS x WHERE x.seq = wanted;
  DELETE FROM progress AS x WHERE x.seq = wanted;
  DELETE FROM task AS x WHERE x.seq = wanted;
END $$;

-- Counts a task into a state, or out of it.
CREATE FUNCTION count_state(queue int4, priority int2, state int4, by int4) RETURNS void LANGUAGE sql AS $$
  INSERT INTO delta (queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled)
  VALUES (
    $1, $2, CASE $3 WHEN 0 THEN $4 ELSE 0 END, CASE $3 WHEN 1 THEN $4 ELSE 0 END, CASE $3 WHEN 2 THEN $4 ELSE 0 END,
    CASE $3 WHEN 3 THEN $4 ELSE 0 END, CASE $3 WHEN 4 THEN $4 ELSE 0 END, CASE $3 WHEN 5 THEN $4 ELSE 0 END,
    CASE $3 WHEN 6 THEN $4 ELSE 0 END
  )
$$;

-- Refuses a value that no task may have.
CREATE FUNCTION check_value(what text, is_good bool) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF is_good IS NOT TRUE THEN
    RAISE EXCEPTION 'submit: % is missing or out of its bounds', what USING ERRCODE = 'invalid_parameter_value';
  END IF;
END $$;

-- True when a task's rare options are empty or a JSON object.
CREATE FUNCTION is_object(extras text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN extras = '' OR json_typeof(extras::json) = 'object';
EXCEPTION WHEN others THEN
  RETURN false;
END $$;

-- Stores one task in the caller's transaction: it exists if and only if that commits. Whoever wants a key of it
-- waits until then, and nobody else does. What a worker or a sweep could not read is refused. `asked`: identity, told, seq, stamp,
-- queue and kind (numbers that everybody can see), queue_name, kind_name, priority, max_retries, max_crashes,
-- timeout_ms, retention_ms, extras, run_at, delay_ms, idempotency_key, unique_key, is_unique, unique_for_ms,
-- returns_holder, is_quiet. Tells `new`, or `existing`, `different` or `conflict` with the task that has the key, or
-- `elsewhere` when the schema is not the one that the caller means.
CREATE FUNCTION submit(asked jsonb, payload bytea, OUT outcome text, OUT holder text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
  a record;
  held record;
  twin record;
  idempotency bytea;
  uniqueness bytea;
  hash int8;
  now_ms int8;
  due int8;
  bits int2;
  lane int2;
BEGIN
  SELECT * INTO a FROM jsonb_to_record(asked) AS r (
    identity text, told int8, seq int8, stamp int8, queue int4, kind int4, queue_name text, kind_name text,
    priority int2, max_retries int4, max_crashes int4, timeout_ms int8, retention_ms int8, extras text, run_at int8,
    delay_ms int8, idempotency_key text, unique_key text, is_unique bool, unique_for_ms int8, returns_holder bool,
    is_quiet bool
  );
  PERFORM 1 FROM identity AS x WHERE x.one = 1 AND x.id = a.identity;
  IF NOT FOUND THEN outcome := 'elsewhere'; RETURN; END IF;
  PERFORM check_value('seq', a.seq BETWEEN 1 AND 4611686018427387903),
    check_value('stamp', a.stamp BETWEEN 0 AND 281474976710655),
    check_value('priority', a.priority BETWEEN 0 AND 3),
    check_value('max_retries', a.max_retries >= 0),
    check_value('max_crashes', a.max_crashes >= 0),
    check_value('timeout_ms', a.timeout_ms >= 0),
    check_value('retention_ms', a.retention_ms >= 0),
    -- Not looked up: a name may be younger than the snapshot of the caller's transaction.
    check_value('queue', a.queue > 0 AND a.queue_name IS NOT NULL),
    check_value('kind', a.kind > 0 AND a.kind_name IS NOT NULL),
    check_value('extras', is_object(a.extras)),
    check_value('payload', submit.payload IS NOT NULL);

  idempotency := digest('idempotency', convert_to(a.kind_name, 'UTF8'), convert_to(a.idempotency_key, 'UTF8'));
  IF a.is_unique THEN
    uniqueness := CASE
      WHEN a.unique_key IS NULL
      THEN digest('derived', convert_to(a.queue_name, 'UTF8'), convert_to(a.kind_name, 'UTF8'), payload)
      ELSE digest('kind', convert_to(a.kind_name, 'UTF8'), convert_to(a.unique_key, 'UTF8'))
    END;
  END IF;
  -- Everybody locks keys in this order.
  FOR hash IN
    SELECT DISTINCT digest_number(u.digest) # salt() AS number
    FROM (VALUES (idempotency), (uniqueness)) AS u (digest)
    WHERE u.digest IS NOT NULL
    ORDER BY number
  LOOP
    PERFORM pg_advisory_xact_lock(hash);
  END LOOP;
  now_ms := clock(a.told);

  IF idempotency IS NOT NULL THEN
    SELECT x.seq, x.stamp INTO held FROM uniq AS x WHERE x.digest = idempotency;
    IF FOUND THEN
      SELECT t.queue = a.queue AND t.kind = a.kind AND t.payload = submit.payload AS is_same,
        coalesce(
          (SELECT f.expires_at <= now_ms FROM fate AS f WHERE f.seq = t.seq AND f.state IS NOT NULL),
          (
            SELECT d.expires_at <= now_ms FROM done AS d
            WHERE d.block = t.seq >> 10 AND (t.seq & 1023)::int2 = ANY (d.offsets)
            LIMIT 1
          ),
          false
        ) AS is_over
      INTO twin FROM task AS t WHERE t.seq = held.seq;
      IF FOUND AND NOT twin.is_over THEN
        outcome := CASE WHEN twin.is_same THEN 'existing' ELSE 'different' END;
        holder := id_of(held.seq, held.stamp);
        RETURN;
      END IF;
      -- Its retention is over: it is gone for readers, so it must be for submitters.
      IF FOUND THEN PERFORM remove_over(held.seq); END IF;
    END IF;
  END IF;
  IF uniqueness IS NOT NULL THEN
    SELECT x.seq, x.stamp INTO held FROM uniq AS x
    WHERE x.digest = uniqueness AND (x.until IS NULL OR x.until > now_ms);
    IF FOUND THEN
      outcome := CASE WHEN a.returns_holder THEN 'existing' ELSE 'conflict' END;
      holder := id_of(held.seq, held.stamp);
      RETURN;
    END IF;
  END IF;

  -- `least` passes over NULL, which stands for "at once" here.
  due := CASE
    WHEN a.run_at IS NOT NULL THEN least(a.run_at, 253402128000000)
    WHEN a.delay_ms IS NOT NULL THEN least(now_ms + least(a.delay_ms, 253402128000000), 253402128000000)
  END;
  IF due <= now_ms THEN due := NULL; END IF;
  bits := CASE WHEN uniqueness IS NOT NULL AND a.unique_for_ms IS NULL THEN 2 ELSE 0 END
    + CASE WHEN octet_length(submit.payload) > 4096 THEN 4 ELSE 0 END;
  lane := a.priority * 2;
  -- Numbers have partitions from the start; but a generation may have gone, or its opening been undone.
  IF NOT EXISTS (SELECT FROM generation AS g WHERE g.lo <= a.seq AND g.hi > a.seq) THEN
    PERFORM make_generation(a.seq, a.told);
  END IF;
  INSERT INTO task (
    seq, stamp, created_at, run_at, timeout_ms, retention_ms, queue, kind, max_retries, max_crashes, priority,
    extras, payload
  ) VALUES (
    a.seq, a.stamp, now_ms, coalesce(due, 0), a.timeout_ms, a.retention_ms, a.queue, a.kind, a.max_retries,
    a.max_crashes, a.priority, convert_to(a.extras, 'UTF8'), submit.payload
  );
  IF idempotency IS NOT NULL OR uniqueness IS NOT NULL THEN
    INSERT INTO keyed (seq, idempotency_key, unique_digest, unique_for_ms)
      VALUES (a.seq, a.idempotency_key, uniqueness, a.unique_for_ms);
    INSERT INTO uniq (digest, seq, stamp, until)
      SELECT u.digest, a.seq, a.stamp, u.until
      FROM (VALUES (idempotency, NULL), (
        uniqueness,
        CASE WHEN a.unique_for_ms IS NOT NULL THEN least(now_ms + least(a.unique_for_ms, 253402128000000), 253402128000000) END
      )) AS u (digest, until)
      WHERE u.digest IS NOT NULL
    ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq, stamp = excluded.stamp, until = excluded.until;
  END IF;
  IF due IS NULL THEN
    INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
      VALUES (nextval('position_seq'), a.seq, a.seq, now_ms, a.queue, lane, bits);
    PERFORM count_state(a.queue, a.priority, 1, 1);
    IF NOT a.is_quiet THEN PERFORM tell('q' || a.queue_name); END IF;
  ELSE
    INSERT INTO deferred (seq, run_at, queue, lane, bits, is_retry) VALUES (a.seq, due, a.queue, lane, bits, false);
    PERFORM count_state(a.queue, a.priority, 0, 1);
  END IF;
  outcome := 'new';
END $$;

-- Completes one task in the caller's transaction. It must have a lease of its own (detach.sql), so that nobody
-- but those who want this task waits for that transaction. `asked`: identity, told, token (of that lease), epoch,
-- seq, took_ms, retention_ms, has_output. Tells `completed`, `lost`, `invisible` when the lease is younger than the snapshot of the
-- transaction, or `elsewhere`.
CREATE FUNCTION complete(asked jsonb, output bytea, OUT outcome text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
  a record;
  held record;
  kept record;
  now_ms int8;
BEGIN
  SELECT * INTO a FROM jsonb_to_record(asked) AS r (
    identity text, told int8, token int8, epoch int8, seq int8, took_ms int4, retention_ms int8,
    has_output bool
  );
  PERFORM 1 FROM identity AS x WHERE x.one = 1 AND x.id = a.identity;
  IF NOT FOUND THEN outcome := 'elsewhere'; RETURN; END IF;
  DELETE FROM lease AS x WHERE x.token = a.token AND x.epoch = a.epoch AND x.ranges @> a.seq
    RETURNING x.worker, x.claimed_at INTO held;
  IF NOT FOUND THEN
    -- Said twice by its own run, in this transaction.
    PERFORM 1 FROM done AS d
      WHERE d.block = a.seq >> 10 AND (a.seq & 1023)::int2 = ANY (d.offsets) AND d.token = a.epoch;
    outcome := CASE
      WHEN FOUND THEN 'completed'
      WHEN current_setting('transaction_isolation') <> 'read committed' THEN 'invisible'
      ELSE 'lost'
    END;
    RETURN;
  END IF;
  now_ms := clock(a.told);
  SELECT t.queue, t.priority, y.unique_digest INTO kept
  FROM task AS t
  LEFT JOIN keyed AS y ON y.seq = t.seq AND y.unique_for_ms IS NULL
  WHERE t.seq = a.seq;
  INSERT INTO done (block, token, claimed_at, finished_at, retention_ms, expires_at, worker, offsets, took)
    VALUES (
      a.seq >> 10, a.epoch, held.claimed_at, now_ms, a.retention_ms, least(now_ms + least(a.retention_ms, 253402128000000), 253402128000000),
      held.worker, ARRAY[(a.seq & 1023)::int2], ARRAY[a.took_ms]
    );
  IF a.has_output THEN
    INSERT INTO result (seq, output) VALUES (a.seq, complete.output)
      ON CONFLICT (seq) DO UPDATE SET output = excluded.output;
  END IF;
  DELETE FROM uniq AS x WHERE x.digest = kept.unique_digest AND x.seq = a.seq;
  PERFORM count_state(kept.queue, kept.priority, 2, -1), count_state(kept.queue, kept.priority, 4, 1);
  outcome := 'completed';
END $$;

-- Who may call these is for the owner to say.
REVOKE ALL ON FUNCTION submit(jsonb, bytea), complete(jsonb, bytea) FROM PUBLIC;
