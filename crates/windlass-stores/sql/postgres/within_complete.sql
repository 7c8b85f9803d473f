-- within_complete: completes a task in the caller's transaction. The schema's name is put in, quoted.
-- in: $1 what is asked, $2 output        out: outcome, nothing
SELECT outcome, NULL::text FROM "{schema}".complete($1::text::jsonb, $2::bytea)
