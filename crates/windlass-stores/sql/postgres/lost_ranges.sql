-- lost_ranges: removes ranges that hold no task, whose first number may be that of one that lost its place.
DELETE FROM ready WHERE hi < lo
