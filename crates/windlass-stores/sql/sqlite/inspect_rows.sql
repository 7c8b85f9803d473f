-- inspect_rows: tasks with values that windlass does not write, at most 20 of them.
-- out: id, queue
SELECT id, queue
FROM windlass_task
WHERE attempts NOT BETWEEN 0 AND 4294967295
  OR crashes NOT BETWEEN 0 AND 4294967295
  OR max_retries NOT BETWEEN 0 AND 4294967295
  OR max_crashes NOT BETWEEN 0 AND 4294967295
  OR state NOT BETWEEN 0 AND 6
  OR priority NOT BETWEEN 0 AND 3
LIMIT 20
