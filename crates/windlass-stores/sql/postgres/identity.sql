-- identity: tells this schema from any other.
SELECT id FROM identity WHERE one = 1
