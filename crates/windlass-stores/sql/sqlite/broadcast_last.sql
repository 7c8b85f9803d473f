-- subscribe: the number of the last message, be it forgotten. out: number
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'windlass_broadcast'
