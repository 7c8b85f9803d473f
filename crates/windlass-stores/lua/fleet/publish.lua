-- publish: tell messages to all who listen. KEYS[1] the stem of the fleet. ARGV[2]… messages. returns how many
for i = 2, #ARGV do call('PUBLISH', KEYS[1] .. 'broadcasts', ARGV[i]) end
return #ARGV - 1
