-- schema: who has signed up, and the letters that were written to them, in a schema of their own.
CREATE SCHEMA IF NOT EXISTS windlass_example_signup;
CREATE TABLE IF NOT EXISTS windlass_example_signup.users (name text);
CREATE TABLE IF NOT EXISTS windlass_example_signup.letters (id int8 GENERATED ALWAYS AS IDENTITY, body text)
