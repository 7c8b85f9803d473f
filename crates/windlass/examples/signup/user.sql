-- user: one who signs up.
INSERT INTO windlass_example_signup.users (name) VALUES ($1)
