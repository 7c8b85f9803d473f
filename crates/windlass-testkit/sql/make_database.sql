-- make_database: makes an empty database for some of the tests.
-- in: {name}, put into the text: no statement takes the name of a database as a value
CREATE DATABASE {name} TEMPLATE template0
