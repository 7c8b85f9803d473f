-- out: the last number given
SELECT sequence
FROM windlass_meta
