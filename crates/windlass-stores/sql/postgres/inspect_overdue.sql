-- inspect_overdue: workers that are silent and not declared lost.
-- in: $1 now        out: how many
SELECT count(*) FROM worker WHERE gone_at IS NULL AND lease_until <= $1::int8
