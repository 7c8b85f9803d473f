-- rewrite: the copy that is being made.
-- out: whether everything was copied once
SELECT copied_to >= hi FROM rewrite
