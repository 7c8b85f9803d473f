-- last_letter: the last that was written.
-- out: its number, 0 for none
SELECT coalesce(max(id), 0) FROM windlass_example_signup.letters
