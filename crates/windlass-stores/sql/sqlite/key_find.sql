-- in: ?1 digest        out: the holder's id, and when the key frees itself
SELECT holder, until
FROM windlass_unique_key
WHERE digest = ?1
