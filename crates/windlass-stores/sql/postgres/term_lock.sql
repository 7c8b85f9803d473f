-- term_lock: the highest term. No other term begins before the transaction ends; renewals of this one do not
-- wait for it. A leader that falls silent within a step is in the way of the next for 10 s at most.
-- out: term
SELECT l.term, set_config('idle_in_transaction_session_timeout', '10s', true)
FROM leader AS l
WHERE l.one = 1
FOR KEY SHARE OF l
