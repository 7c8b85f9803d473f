-- Counts that are all zero are removed when they have been so for a day: the queue is then not listed any more. Its row
-- in `queue` stays, since processes remember its number.
ALTER TABLE counter ADD COLUMN empty_since int8;   -- when upkeep first saw so; NULL after any change
