-- worker_sweep_end: removes workers that no task names, unless they hold one.
-- in: $1 numbers, $2 gone before
DELETE FROM worker AS w
WHERE w.number = ANY ($1::int4[])
  AND w.gone_at < $2::int8
  AND NOT EXISTS (SELECT FROM lease AS l WHERE l.worker = w.number)
