-- letter: one that was written.
INSERT INTO letters (body) VALUES ($1)
