-- schema: who has signed up, and the letters that were written to them.
CREATE TABLE IF NOT EXISTS users (name text);
CREATE TABLE IF NOT EXISTS letters (body text)
