-- inspect_commit: whether commits of this session wait for the disk.
-- out: synchronous_commit
SELECT current_setting('synchronous_commit')
