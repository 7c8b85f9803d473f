-- publish: tells messages to all who listen. Of two that are alike in one transaction only one would be told: numbers set
-- them apart.
-- in: $1 channel, $2 messages
SELECT pg_notify($1::text, m.number || E'\n' || m.message)
FROM unnest($2::text[]) WITH ORDINALITY AS m (message, number)
ORDER BY m.number
