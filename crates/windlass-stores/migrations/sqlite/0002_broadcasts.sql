-- What processes tell each other: read along by those who listen, forgotten after a moment.

CREATE TABLE windlass_broadcast (
  number  INTEGER PRIMARY KEY AUTOINCREMENT,      -- without holes, also after all were forgotten
  message TEXT NOT NULL,
  at      INTEGER NOT NULL
) STRICT;
