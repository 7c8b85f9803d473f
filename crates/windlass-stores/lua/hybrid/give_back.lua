-- give_back: gives back what came to a worker by a move that it waited for and no claim has taken: it may have no room
-- for it any more, and others may.
-- KEYS[1] stem    ARGV[1] worker    returns nothing
give_back(stem .. 'moved:' .. ARGV[1])
