-- tend_cancels: forgets wishes to cancel what was completed instead.
-- in: $1 limit
UPDATE fate SET cancel = false
WHERE seq = ANY (ARRAY(
  SELECT f.seq FROM fate AS f
  WHERE f.cancel AND EXISTS (
    SELECT FROM done AS d WHERE d.block = f.seq >> 10 AND (f.seq & 1023)::int2 = ANY (d.offsets)
  )
  LIMIT $1::int8
  FOR UPDATE SKIP LOCKED
))
