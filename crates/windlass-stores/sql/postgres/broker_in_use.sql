-- broker_in_use: whether a process that knows a broker has said so within the last minute.
SELECT EXISTS (SELECT FROM broker AS b WHERE b.seen_at > clock(NULL) - 60000)
