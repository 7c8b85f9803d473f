-- broker_drop: does away with an outbox that nobody has used for a minute.
SELECT use_brokers('{}') WHERE EXISTS (SELECT FROM broker) AND NOT EXISTS (
  SELECT FROM broker AS b WHERE b.seen_at > clock(NULL) - 60000
)
