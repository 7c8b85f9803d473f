-- tend_vacuum: clears the small hot tables of dead rows more often than the server does by itself.
VACUUM (SKIP_LOCKED) ready, lease, deferred, delta, outbox, ready_count
