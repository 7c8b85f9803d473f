-- ping: the store's time, and whether it can be written to.
-- in: $1 the time in a test, or NULL
-- out: ms since 1970, is read-only, version, the role lacks a right that every submit, claim or report needs
SELECT clock($1::int8), current_setting('transaction_read_only') = 'on', current_setting('server_version'),
  EXISTS (
    SELECT FROM (VALUES ('task', 'INSERT'), ('delta', 'INSERT'), ('ready', 'INSERT'), ('ready', 'DELETE'),
      ('deferred', 'INSERT'), ('lease', 'INSERT'), ('lease', 'DELETE'), ('done', 'INSERT')) AS n (place, need)
    WHERE NOT has_table_privilege(n.place, n.need)
  )
