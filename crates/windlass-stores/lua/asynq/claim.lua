-- claim: lease pending tasks of one or more queues to one worker.
-- ARGV from 2: as `claiming` says. returns {time, {status, found...}}
return { now, claim(2) }
