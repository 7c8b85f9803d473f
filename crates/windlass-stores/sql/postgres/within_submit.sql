-- within_submit: stores a task in the caller's transaction. The schema's name is put in, quoted: it cannot be bound.
-- in: $1 what is asked, $2 payload        out: outcome, holder of the key
SELECT outcome, holder FROM "{schema}".submit($1::text::jsonb, $2::bytea)
