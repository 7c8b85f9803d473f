-- over_limit: lets the script behind it write while the server's memory is over `maxmemory`. Put in front of
-- every script that ends, removes or keeps alive what is there; submits go without it and are refused.
--
-- A server refuses a command that may take memory only as the first write of a script: a script is not stopped
-- in its midst. PERSIST counts as a write, takes no memory, and changes nothing: no key that a script names first
-- has a time to live. Scripts may ask for this by a flag from 7.0 on; this way serves 6.2, too.
redis.call('PERSIST', KEYS[1])
