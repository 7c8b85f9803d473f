-- prepare: has statements counted.
CREATE EXTENSION pg_stat_statements
