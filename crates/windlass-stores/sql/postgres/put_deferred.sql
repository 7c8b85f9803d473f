-- put_deferred: lets tasks wait for their time.
-- in: $1 seq, $2 run_at, $3 queue, $4 lane, $5 bits, $6 is_retry
INSERT INTO deferred (seq, run_at, queue, lane, bits, is_retry)
SELECT * FROM unnest($1::int8[], $2::int8[], $3::int4[], $4::int2[], $5::int2[], $6::bool[])
