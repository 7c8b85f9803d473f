-- flush: waits until everything that was committed before is on the disk.
SELECT pg_logical_emit_message(true, 'windlass', '')
