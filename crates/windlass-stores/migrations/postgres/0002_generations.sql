-- Generations. Numbers n × 2^32 … (n + 1) × 2^32 - 1 are a generation, which has a partition each of `task`,
-- `result` and `keyed`. Retention drops generations; a generation in which little is left is replaced by a copy
-- of what still stands. Whatever changes tables is in functions that run with the rights of the schema's owner,
-- so that a role without such rights can do all of it. They take numbers only, and find names along a path that
-- ends with the temporary schema: nobody's own table can stand in for one of these. Their parts have only the
-- rights of who calls them.
--
-- Locks: 'generation' (advisory) is exclusive for whoever makes, copies or drops generations and shared for
-- whoever counts tasks as pruned; 'task_seq' (advisory) is for whoever takes numbers.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE SEQUENCE generation_seq MINVALUE 0 START 0;

CREATE TABLE generation (
  number    int8 PRIMARY KEY,                      -- in the names of its partitions
  lo        int8 NOT NULL UNIQUE,                  -- numbers from this one on
  hi        int8 NOT NULL,                         -- and below this one
  opened_at int8,                                  -- NULL: nobody has looked yet
  closed_at int8,                                  -- NULL while numbers are taken from it
  used      int8 NOT NULL DEFAULT 0,               -- numbers taken until it was closed; rows, of a copy
  pruned    int8 NOT NULL DEFAULT 0                -- rows of tasks that stand in no place
);

-- The copy that is being made of what stands in some generations, if there is one.
CREATE TABLE rewrite (
  one       int2 PRIMARY KEY CHECK (one = 1),
  number    int8 NOT NULL,                         -- of the copy
  lo        int8 NOT NULL,
  hi        int8 NOT NULL,
  copied_to int8 NOT NULL,                         -- what stood below this number is in the copy
  copied    int8 NOT NULL                          -- about how many rows
);

-- Numbers under copy that were changed since the copy was begun.
CREATE TABLE rewrite_change (
  seq int8 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Every number from `a` on and below `b` that stands in a place; twice if it stands in two.
CREATE FUNCTION standing(a int8, b int8) RETURNS TABLE (seq int8) LANGUAGE sql STABLE AS $$
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

-- The first number from `a` on that stands in a place, or an earlier one of its block of 1,024; NULL for none.
-- `a` must be the first of a block.
CREATE FUNCTION stands_from(a int8) RETURNS int8 LANGUAGE sql STABLE AS $$
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

-- A number below `b` above which, up to `b`, no task stands; NULL when none stands below `b`.
CREATE FUNCTION stands_below(b int8) RETURNS int8 LANGUAGE sql STABLE AS $$
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

-- A block of numbers in a row. The lock keeps two callers from sharing one.
CREATE FUNCTION reserve(wanted int8) RETURNS int8
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE first int8;
BEGIN
  PERFORM pg_advisory_xact_lock('task_seq'::regclass::int8);
  first := nextval('task_seq');
  IF wanted > 1 THEN
    PERFORM setval('task_seq', first + wanted - 1);
  END IF;
  -- Over the end of a generation, or in one whose opening was undone.
  IF NOT EXISTS (SELECT FROM generation AS g WHERE g.lo <= first + wanted - 1 AND g.hi > first + wanted - 1) THEN
    PERFORM add_generation(first + wanted - 1, NULL);
  END IF;
  RETURN first;
END $$;

-- Makes a table like `base` that can become a partition of it. Rows are only added: nothing to vacuum.
CREATE FUNCTION make_part(base text, number int8) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format(
    'CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (autovacuum_vacuum_insert_threshold = -1)', base || '_' || number, base
  );
END $$;

-- Notes down that a row under copy was changed.
CREATE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO rewrite_change (seq) VALUES (CASE TG_OP WHEN 'DELETE' THEN OLD.seq ELSE NEW.seq END);
  RETURN NULL;
END $$;

-- Lets changes of a generation's rows be noted down. Waits for those who are changing some.
CREATE FUNCTION watch_generation(number int8) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE base text;
BEGIN
  FOREACH base IN ARRAY ARRAY['task', 'result', 'keyed'] LOOP
    EXECUTE format(
      'CREATE OR REPLACE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION note_change()',
      base || '_' || number
    );
  END LOOP;
END $$;

-- Makes the partitions for a number, or those that are missing. They are attached and not created as partitions,
-- which would make everybody wait.
CREATE FUNCTION add_generation(wanted int8, now int8) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '10s' AS $$
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

-- The same for a client whose insert found no partition; false for a number that nobody has reserved.
CREATE FUNCTION make_generation(wanted int8, told int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF wanted < 0 OR wanted > (SELECT s.last_value FROM task_seq AS s) THEN
    RETURN false;
  END IF;
  PERFORM add_generation(wanted, clock(told));
  RETURN true;
END $$;

-- Lets numbers be taken from a new generation from now on. What was reserved before stays good.
CREATE FUNCTION open_generation(now int8) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- How the generations stand, in order: when they were opened and closed, how many numbers were used, how many rows
-- pruned, whether any task stands in a closed one. Tells what time it is where nobody has before.
CREATE FUNCTION generations(now int8)
RETURNS TABLE (lo int8, hi int8, opened_at int8, closed_at int8, used int8, pruned int8, is_empty bool, alive int8)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- Keeps everybody away from the rows of tasks. Whoever has to wait for this does so for a moment only: it is given
-- up soon, and tried again later.
CREATE FUNCTION lock_tasks() RETURNS void
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('generation'::regclass::int8);
  LOCK TABLE ONLY task IN ACCESS EXCLUSIVE MODE;
  LOCK TABLE ONLY result, ONLY keyed IN ACCESS EXCLUSIVE MODE;
END $$;

-- Drops generations in which no task stands; answers how many.
CREATE FUNCTION drop_generations(los int8[]) RETURNS int8
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
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

-- Begins to copy what stands in the closed generations from `first` on and below `past`, to take their place.
CREATE FUNCTION begin_rewrite(first int8, past int8) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
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

-- Copies rows by their numbers; answers how many tasks.
CREATE FUNCTION copy_rows(copy int8, seqs int8[], a int8, b int8) RETURNS int8
LANGUAGE plpgsql AS $$
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

-- Copies one stretch of at most `width` numbers, a multiple of 1,024; answers whether there is more to copy.
CREATE FUNCTION copy_standing(width int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- Brings at most `most` changes into the copy; answers whether that was all.
CREATE FUNCTION mend_copy(most int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- Puts the copy in the place of what it was made of; false when there is still something to copy or too much to mend.
CREATE FUNCTION end_rewrite(most int8) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
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

REVOKE ALL ON FUNCTION
  reserve(int8), note_change(), make_generation(int8, int8), open_generation(int8), generations(int8),
  drop_generations(int8[]), begin_rewrite(int8, int8), copy_standing(int8), mend_copy(int8), end_rewrite(int8)
FROM PUBLIC;

SELECT add_generation(1, NULL);
