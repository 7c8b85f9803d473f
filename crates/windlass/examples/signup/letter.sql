-- letter: one that was written.
INSERT INTO windlass_example_signup.letters (body) VALUES ($1)
