-- out: the last number given
SELECT sequence
FROM meta
