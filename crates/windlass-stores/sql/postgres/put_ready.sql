-- put_ready: lets ranges of tasks wait for a worker, in the order given.
-- in: $1 position, or NULL for the end of the lane, $2 lo, $3 hi, $4 since, $5 queue, $6 lane, $7 bits
INSERT INTO ready (position, lo, hi, since, queue, lane, bits)
SELECT coalesce(u.position, nextval('position_seq')), u.lo, u.hi, u.since, u.queue, u.lane, u.bits
FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int4[], $6::int2[], $7::int2[])
  AS u (position, lo, hi, since, queue, lane, bits)
