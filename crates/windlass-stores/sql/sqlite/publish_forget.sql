-- publish: only the last messages are kept.
-- in: ?1 how many
DELETE FROM windlass_broadcast
WHERE number <= (SELECT max(number) FROM windlass_broadcast) - ?1
