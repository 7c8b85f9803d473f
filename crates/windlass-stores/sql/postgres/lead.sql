-- lead: how leadership stands, locked for a bid. No row while another bid, or upkeep of the last term, is
-- under way: who bids waits for nobody, and nobody waits long for it.
-- in: $1 the time in a test, or NULL, $2 whether the bidder knows the brokers
-- out: holder, until, term, now, whether others use brokers that the bidder does not know
SELECT l.holder, l.until, l.term, clock($1::int8), NOT $2::bool AND EXISTS (
  SELECT FROM broker AS b WHERE b.seen_at > clock(NULL) - 60000
)
FROM leader AS l
WHERE l.one = 1
FOR UPDATE OF l SKIP LOCKED
