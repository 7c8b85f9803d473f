-- letters: all that were written after one.
-- in: $1 the last before        out: the letters
SELECT body FROM windlass_example_signup.letters WHERE id > $1 ORDER BY body
