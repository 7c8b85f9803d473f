-- Tasks in bulk, their timelines, and workers, from SQL alone.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Every task that is kept, for counting and grouping many of them: a row each, without payload, result and timeline. It
-- starts from the places where tasks stand, and reads each table once. `tasks` is quicker for a few.
CREATE VIEW task_states AS
SELECT p.seq, k.name AS type, q.name AS queue, t.priority,
  (ARRAY['scheduled', 'pending', 'running', 'retrying', 'completed', 'dead_letter', 'cancelled'])[p.state + 1] AS state,
  coalesce(f.attempts, 0) + (p.state IN (2, 4))::int4 AS attempts, coalesce(f.crashes, 0) AS crashes,
  moment(t.created_at) AS created_at, moment(coalesce(f.run_at, nullif(t.run_at, 0))) AS run_at,
  moment(coalesce(p.claimed_at, f.claimed_at)) AS claimed_at,
  moment(CASE WHEN p.state IN (2, 4) THEN p.started_at ELSE f.started_at END) AS started_at,
  moment(CASE WHEN p.state IN (5, 6) THEN f.finished_at ELSE p.finished_at END) AS completed_at
FROM (
  SELECT d.seq, CASE WHEN d.is_retry THEN 3 ELSE 0 END AS state, NULL::int8 AS claimed_at, NULL::int8 AS started_at,
    NULL::int8 AS finished_at
  FROM deferred AS d
  UNION ALL
  SELECT g.seq, 1, NULL, NULL, NULL
  FROM ready AS r CROSS JOIN LATERAL generate_series(r.lo, r.hi) AS g (seq)
  UNION ALL
  SELECT g.seq, 2, l.claimed_at, NULL, NULL
  FROM lease AS l
  CROSS JOIN LATERAL unnest(l.ranges) AS u (part)
  CROSS JOIN LATERAL generate_series(lower(u.part), upper(u.part) - 1) AS g (seq)
  UNION ALL
  SELECT (x.block << 10) | o.place, 4, x.claimed_at, x.finished_at - nullif(o.took, -1), x.finished_at
  FROM done AS x CROSS JOIN LATERAL unnest(x.offsets, x.took) AS o (place, took)
  WHERE x.expires_at > (SELECT clock(NULL))
  UNION ALL
  SELECT z.seq, z.state, NULL, NULL, NULL
  FROM fate AS z
  WHERE z.state IS NOT NULL AND (z.expires_at IS NULL OR z.expires_at > (SELECT clock(NULL)))
) AS p
JOIN task AS t ON t.seq = p.seq
JOIN queue AS q ON q.id = t.queue
JOIN kind AS k ON k.id = t.kind
LEFT JOIN fate AS f ON f.seq = p.seq;

-- The timelines of tasks, a row for each entry, `ord` in the order of each. The happy path is in no timeline: its entries
-- follow from the times of the task. Look a task up by `task_events(id)`, or by `seq = seq_of(id)`.
CREATE VIEW events AS
SELECT r.seq, id_of(r.seq, r.stamp) AS task_id, e.ord, e.at AS time, e.event, e.attempt, e.worker AS worker_id, e.message,
  e.requested_by
FROM record AS r
CROSS JOIN LATERAL (SELECT as_jsonb(r.history) AS entries) AS j
CROSS JOIN LATERAL (
  SELECT CASE WHEN jsonb_typeof(j.entries) = 'array' THEN j.entries ELSE '[]' END AS entries
) AS k
CROSS JOIN LATERAL (
  SELECT row_number() OVER (ORDER BY s.place, s.part) AS ord, s.at, s.event, s.attempt, s.worker, s.message, s.requested_by
  FROM (
    SELECT 0::int8 AS place, 0 AS part, moment(r.created_at) AS at, 'submitted' AS event, NULL::int4 AS attempt,
      NULL::text AS worker, NULL::text AS message, NULL::text AS requested_by
    UNION ALL
    -- The claim of each run that the timeline names, before the first entry of that run.
    SELECT h.place, 0, (h.entry -> 'run' ->> 'claimed_at')::timestamptz, 'claimed', (h.entry -> 'run' ->> 'attempt')::int4,
      h.entry -> 'run' ->> 'worker', NULL, NULL
    FROM (
      SELECT a.entry, a.ord AS place,
        row_number() OVER (PARTITION BY a.entry -> 'run' ->> 'epoch' ORDER BY a.ord) AS nth
      FROM jsonb_array_elements(k.entries) WITH ORDINALITY AS a (entry, ord)
      WHERE a.entry -> 'run' IS NOT NULL
    ) AS h
    WHERE h.nth = 1
    UNION ALL
    SELECT a.ord, 1, (a.entry ->> 'at')::timestamptz, a.entry ->> 'what', (a.entry -> 'run' ->> 'attempt')::int4,
      a.entry -> 'run' ->> 'worker', a.entry ->> 'error', a.entry ->> 'by'
    FROM jsonb_array_elements(k.entries) WITH ORDINALITY AS a (entry, ord)
    UNION ALL
    -- The present run, or the one that completed.
    SELECT 1000000, 0, moment(r.claimed_at), 'claimed', r.attempts, r.worker, NULL, NULL
    WHERE r.state IN (2, 4) AND r.worker IS NOT NULL AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(k.entries) AS a (entry)
      WHERE a.entry -> 'run' ->> 'epoch' = r.token::text
    )
    UNION ALL
    SELECT 1000000, 1, moment(r.finished_at), 'completed', r.attempts, r.worker, NULL, NULL WHERE r.state = 4
  ) AS s
) AS e
WHERE r.state IS NOT NULL AND (r.expires_at IS NULL OR r.expires_at > (SELECT clock(NULL)));

-- The timeline of one task, by its id; quick.
CREATE FUNCTION task_events(id text) RETURNS SETOF events LANGUAGE sql STABLE
BEGIN ATOMIC
  SELECT e.* FROM events AS e WHERE e.seq = seq_of(task_events.id) AND e.task_id = task_events.id ORDER BY e.ord;
END;

-- Workers that are remembered, the present ones and those that are gone.
CREATE VIEW workers AS
SELECT w.id, c.card ->> 'name' AS name, c.card ->> 'host' AS host, (c.card ->> 'pid')::int8 AS pid,
  c.card ->> 'version' AS version, coalesce(c.card -> 'queues', '[]') AS queues, (c.card ->> 'slots')::int8 AS slots,
  (c.card ->> 'slots_used')::int8 AS slots_used,
  CASE
    WHEN w.gone_at IS NOT NULL THEN 'gone'
    WHEN w.lease_until <= (SELECT clock(NULL)) THEN 'silent'
    ELSE coalesce(c.card ->> 'doing', 'run')
  END AS state,
  w.run_order AS requested_state, moment(w.started_at) AS started_at, moment(w.beat_at) AS heartbeat_at,
  moment(w.lease_until) AS lease_expires_at, moment(w.gone_at) AS gone_at,
  w.gone_at IS NULL AND w.id = l.holder AND l.until > (SELECT clock(NULL)) AS is_leader
FROM worker AS w
CROSS JOIN LATERAL (SELECT as_jsonb(convert_to(w.card, 'UTF8')) AS card) AS c
LEFT JOIN leader AS l ON l.one = 1;
