-- out: how many migrations were applied
SELECT version
FROM windlass_meta
