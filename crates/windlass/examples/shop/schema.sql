-- schema: the application's own tables, beside windlass's in the same file.
CREATE TABLE orders (
  id   INTEGER PRIMARY KEY,
  item TEXT NOT NULL
) STRICT;

CREATE TABLE invoices (
  id        INTEGER PRIMARY KEY,
  for_order INTEGER NOT NULL REFERENCES orders (id)
) STRICT;
