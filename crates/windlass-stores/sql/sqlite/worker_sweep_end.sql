-- tend: remove a worker that no task names.
-- in: ?1 number, ?2 gone before
DELETE FROM windlass_worker
WHERE number = ?1
  AND gone_at < ?2
  AND NOT EXISTS (SELECT 1 FROM windlass_task AS t WHERE t.state = 2 AND t.worker = ?1)
