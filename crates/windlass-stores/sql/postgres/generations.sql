-- generations: how the generations stand, in order.
-- in: $1 now        out: lo, hi, opened_at, closed_at, used, pruned, is_empty, tasks in all
SELECT lo, hi, opened_at, closed_at, used, pruned, is_empty, alive FROM generations($1::int8)
