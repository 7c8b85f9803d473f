-- out: a row if there is any large payload or result
SELECT 1
FROM windlass_blob
LIMIT 1
