-- in: ?1 holder, ?2 until, ?3 term
UPDATE leader
SET holder = ?1,
    until = ?2,
    term = ?3
