-- list_floor: the number just below the newest $2 tasks under number $1.
SELECT seq FROM task WHERE seq < $1::int8 ORDER BY seq DESC OFFSET $2::int8 LIMIT 1
