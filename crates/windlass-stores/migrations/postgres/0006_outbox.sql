-- An outbox for a broker in front of this database. While no broker is used, nothing here runs: the triggers that
-- fill these tables are made when one is first used, and go when nobody uses it any more.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The brokers that carry references to rows of `ready`. None: tasks are found in this database alone.
CREATE TABLE broker (
  name       text PRIMARY KEY,
  seen_at    int8 NOT NULL,                        -- when a process that knows it last said so, by the server's clock
  generation text                                  -- what it held references of all pending tasks under; NULL: it may not
);

-- Rows of `ready` whose references are not known to be with a broker, and ones that were taken otherwise than by a
-- claim, whose references lead nowhere. Written by the statement that makes or takes the row, removed when the broker
-- knows. A note that is left over costs a reference that leads nowhere.
CREATE TABLE outbox (
  xact     int8 NOT NULL,                          -- the transaction that made the row
  made_at  int8 NOT NULL,                          -- by the server's clock
  position int8 NOT NULL,
  lo       int8 NOT NULL,
  hi       int8 NOT NULL,                          -- below lo: the row is gone
  queue    int4 NOT NULL,
  lane     int2 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX outbox_xact ON outbox (xact);

-- How many rows `ready` has, by lane: every statement adds what it changes, and a sweep adds it up.
CREATE TABLE ready_count (
  queue int4 NOT NULL,
  lane  int2 NOT NULL,
  rows  int8 NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Notes down rows that were made, for whoever pushes their references after the commit.
CREATE FUNCTION note_ready() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO outbox (xact, made_at, position, lo, hi, queue, lane)
    SELECT pg_current_xact_id()::text::int8, clock(NULL), m.position, m.lo, m.hi, m.queue, m.lane FROM made AS m;
  IF FOUND THEN
    INSERT INTO ready_count (queue, lane, rows) SELECT m.queue, m.lane, count(*) FROM made AS m GROUP BY 1, 2;
  END IF;
  RETURN NULL;
END $$;

-- Counts rows that were taken. Claims come by the reference, and say so by a setting of their transaction.
CREATE FUNCTION note_taken() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF current_setting('windlass.claims', true) IS DISTINCT FROM 'on' THEN
    INSERT INTO outbox (xact, made_at, position, lo, hi, queue, lane)
      SELECT pg_current_xact_id()::text::int8, clock(NULL), t.position, t.lo, t.lo - 1, t.queue, t.lane FROM taken AS t;
  END IF;
  INSERT INTO ready_count (queue, lane, rows) SELECT t.queue, t.lane, -count(*) FROM taken AS t GROUP BY 1, 2;
  RETURN NULL;
END $$;

-- Has the outbox filled for these brokers; for none, no longer. What was pending before is for them to be told of.
CREATE FUNCTION use_brokers(names text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s' AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('broker'::regclass::int8);
  DELETE FROM broker AS b WHERE b.name <> ALL (names);
  INSERT INTO broker (name, seen_at) SELECT u.name, clock(NULL) FROM unnest(names) AS u (name)
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at;
  IF (cardinality(names) > 0) = EXISTS (
    SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'ready'::regclass AND t.tgname = 'note_ready'
  ) THEN
    RETURN;
  END IF;
  -- Nobody makes or takes rows meanwhile.
  LOCK TABLE ready IN SHARE ROW EXCLUSIVE MODE;
  DROP TRIGGER IF EXISTS note_ready ON ready;
  DROP TRIGGER IF EXISTS note_taken ON ready;
  DELETE FROM outbox;
  DELETE FROM ready_count;
  IF cardinality(names) > 0 THEN
    CREATE TRIGGER note_ready AFTER INSERT ON ready REFERENCING NEW TABLE AS made
      FOR EACH STATEMENT EXECUTE FUNCTION note_ready();
    CREATE TRIGGER note_taken AFTER DELETE ON ready REFERENCING OLD TABLE AS taken
      FOR EACH STATEMENT EXECUTE FUNCTION note_taken();
    INSERT INTO ready_count (queue, lane, rows) SELECT r.queue, r.lane, count(*) FROM ready AS r GROUP BY 1, 2;
    UPDATE broker SET generation = NULL;
  END IF;
END $$;

REVOKE ALL ON FUNCTION use_brokers(text[]) FROM PUBLIC;
