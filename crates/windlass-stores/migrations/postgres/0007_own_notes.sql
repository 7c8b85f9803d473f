-- Submits and claims that have to be fast write down for brokers in one statement what they make and take, and say so by
-- a setting of their transaction: a trigger would cost them as much as all the rest. Triggers do it for all others.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Has the outbox filled for these brokers; for none, no longer. What was pending before is for them to be told of.
CREATE OR REPLACE FUNCTION use_brokers(names text[]) RETURNS void
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
      FOR EACH STATEMENT WHEN (current_setting('windlass.notes', true) IS DISTINCT FROM 'own')
      EXECUTE FUNCTION note_ready();
    CREATE TRIGGER note_taken AFTER DELETE ON ready REFERENCING OLD TABLE AS taken
      FOR EACH STATEMENT WHEN (current_setting('windlass.notes', true) IS DISTINCT FROM 'own')
      EXECUTE FUNCTION note_taken();
    INSERT INTO ready_count (queue, lane, rows) SELECT r.queue, r.lane, count(*) FROM ready AS r GROUP BY 1, 2;
    UPDATE broker SET generation = NULL;
  END IF;
END $$;

-- Where brokers are in use, they go on with the new triggers.
DO $$
DECLARE
  names text[] := ARRAY(SELECT b.name FROM broker AS b);
BEGIN
  IF cardinality(names) > 0 THEN
    DROP TRIGGER IF EXISTS note_ready ON ready;
    DROP TRIGGER IF EXISTS note_taken ON ready;
    PERFORM use_brokers(names);
  END IF;
END $$;
