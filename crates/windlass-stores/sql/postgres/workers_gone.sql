-- workers_gone: which of these workers are not there, or no longer.
-- in: $1 ids        out: id
SELECT u.id
FROM unnest($1::text[]) AS u (id)
WHERE NOT EXISTS (SELECT FROM worker AS w WHERE w.id = u.id AND w.gone_at IS NULL)
