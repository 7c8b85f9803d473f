-- letters: all that were written.
SELECT body FROM letters ORDER BY body
