-- outbox_forget: removes rows whose references are with the broker. The commit need not wait for the disk: if it is lost,
-- they are pushed again.
-- in: $1 transaction, $2 lo
WITH lax AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
DELETE FROM outbox
WHERE ctid = ANY (ARRAY(
  SELECT o.ctid
  FROM lax
  CROSS JOIN unnest($1::int8[], $2::int8[]) AS u (xact, lo)
  CROSS JOIN LATERAL (SELECT x.ctid FROM outbox AS x WHERE x.xact = u.xact AND x.lo = u.lo) AS o
))
