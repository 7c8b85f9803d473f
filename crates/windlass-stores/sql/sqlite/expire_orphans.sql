-- expire: running tasks of workers that are gone.
-- in: ?1 limit        out: number
SELECT t.number
FROM task AS t
WHERE t.state = 2
  AND t.worker IN (SELECT w.number FROM worker AS w WHERE w.gone_at IS NOT NULL)
LIMIT ?1
