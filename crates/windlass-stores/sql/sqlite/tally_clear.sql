-- in repair: forget all counts, before they are written anew
UPDATE windlass_tally
SET scheduled = 0, pending = 0, running = 0, retrying = 0, completed = 0, dead_letter = 0, cancelled = 0
