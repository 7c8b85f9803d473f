-- list_stretch: where the next stretch of a list lies; nothing when no task stands below $1. Rows of tasks that
-- stand nowhere may lie between any two, so that a stretch is bounded by rows and not by tasks.
-- in: $1 below this number, $2 how many rows        out: its first number, the number just below it
SELECT p.top, (SELECT t.seq FROM task AS t WHERE t.seq <= p.top ORDER BY t.seq DESC OFFSET $2::int8 LIMIT 1)
FROM (SELECT stands_below($1::int8) AS top OFFSET 0) AS p
WHERE p.top IS NOT NULL
