-- progress: how far a run has come, while its lease is valid.
-- in: $1 token, $2 seq, $3 body
INSERT INTO progress (seq, body)
SELECT $2::int8, $3::text FROM (SELECT FROM lease WHERE token = $1::int8 AND ranges @> $2::int8 FOR SHARE) AS l
ON CONFLICT (seq) DO UPDATE SET body = excluded.body
