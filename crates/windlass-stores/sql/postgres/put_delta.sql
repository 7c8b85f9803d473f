-- put_delta: counts tasks into and out of states.
-- in: $1 queue, $2 priority, $3 scheduled, $4 pending, $5 running, $6 retrying, $7 completed, $8 dead_letter, $9 cancelled
INSERT INTO delta (queue, priority, scheduled, pending, running, retrying, completed, dead_letter, cancelled)
SELECT * FROM unnest(
  $1::int4[], $2::int2[], $3::int4[], $4::int4[], $5::int4[], $6::int4[], $7::int4[], $8::int4[], $9::int4[]
)
