-- ready_stretch: rows of a lane from the last one before a position down, as they are pushed again. Rows of one position
-- come together, and in no order: with one the whole lane would be sorted each time.
-- in: $1 queue, $2 lane, $3 before this position, $4 limit        out: 0, position, lo, hi, queue, lane
SELECT 0::int8, r.position, r.lo, r.hi, r.queue, r.lane
FROM ready AS r
WHERE r.queue = $1::int4 AND r.lane = $2::int2 AND r.position < $3::int8
ORDER BY r.position DESC
FETCH FIRST ($4::int8) ROWS WITH TIES
