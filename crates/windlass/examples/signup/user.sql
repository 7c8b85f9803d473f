-- user: one who signs up.
INSERT INTO users (name) VALUES ($1)
