-- lock_all: lets nobody else write until the transaction ends.
LOCK TABLE delta, ready, lease, deferred, fate, done, task IN SHARE ROW EXCLUSIVE MODE
