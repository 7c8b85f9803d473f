-- in: ?1 holder, ?2 until, ?3 term
UPDATE windlass_leader
SET holder = ?1,
    until = ?2,
    term = ?3
