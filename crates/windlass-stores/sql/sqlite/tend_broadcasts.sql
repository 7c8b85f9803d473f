-- tend: messages that everyone who listens has read.
-- in: ?1 told before
DELETE FROM windlass_broadcast
WHERE at < ?1
