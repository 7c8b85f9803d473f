-- alive: writes something that goes away by itself. A server that takes no scripts, or no writes, is of no use.
-- KEYS[1] stem    returns nothing
call('SET', stem .. 'alive', 1, 'EX', 60)
