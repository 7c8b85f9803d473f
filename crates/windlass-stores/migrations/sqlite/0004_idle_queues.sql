-- Counts that are all zero are removed when they have been so for a day: the queue is then not listed any more.
ALTER TABLE windlass_tally ADD COLUMN empty_since INTEGER;   -- when upkeep first saw so; NULL after any change
