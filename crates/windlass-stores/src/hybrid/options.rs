//! How a hybrid store is opened.

use std::time::Duration;

use windlass_core::{Error, Result};

use crate::postgres::PostgresOptions;
use crate::redis::RedisOptions;

/// From one comparison of brokers and ledger to the next.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

const HOW_MANY: &str = "brokers: give one URL, or high=URL and low=URL";

/// A ledger, and the brokers in front of it.
#[derive(Debug, Clone)]
pub struct HybridOptions {
    pub(super) ledger: PostgresOptions,
    brokers: Servers,
    pub(super) sweep_every: Duration,
}

#[derive(Debug, Clone)]
enum Servers {
    One(Box<RedisOptions>),
    Two { high: Box<RedisOptions>, low: Box<RedisOptions> },
}

impl HybridOptions {
    /// One broker for all priorities.
    pub fn one(ledger: PostgresOptions, broker: RedisOptions) -> Result<Self> {
        let broker = Box::new(check(broker)?);
        Ok(Self { ledger, brokers: Servers::One(broker), sweep_every: SWEEP_EVERY })
    }

    /// One broker for critical and high tasks, another for normal and low ones.
    pub fn two(ledger: PostgresOptions, high: RedisOptions, low: RedisOptions) -> Result<Self> {
        let (high, low) = (Box::new(check(high)?), Box::new(check(low)?));
        Ok(Self { ledger, brokers: Servers::Two { high, low }, sweep_every: SWEEP_EVERY })
    }

    /// Reads what `--broker` was given: one URL, or `high=URL` and `low=URL`.
    pub fn of_urls(ledger: PostgresOptions, brokers: &[String]) -> Result<Self> {
        let (mut high, mut low, mut all) = (None, None, None);
        for broker in brokers {
            let (place, url) = match broker.split_once('=') {
                Some(("high", url)) => (&mut high, url),
                Some(("low", url)) => (&mut low, url),
                // It may hold a password, so it is not repeated.
                Some((name, _)) if !name.contains("://") => return Err(Error::invalid(HOW_MANY)),
                _ => (&mut all, broker.as_str()),
            };
            if url.contains("+asynq://") {
                let text = "a broker: leave +asynq out of its URL; it holds references, not tasks";
                return Err(Error::invalid(text));
            }
            if place.replace(RedisOptions::of_url(url)?).is_some() {
                return Err(Error::invalid("a broker was named twice for the same priorities"));
            }
        }
        match (high, low, all) {
            (Some(high), Some(low), None) => Self::two(ledger, high, low),
            (None, None, Some(all)) => Self::one(ledger, all),
            _ => Err(Error::invalid(HOW_MANY)),
        }
    }

    /// Compares brokers and ledger so often; every 5 s unless it is told otherwise.
    #[must_use]
    pub fn sweep_every(self, pause: Duration) -> Self {
        Self { sweep_every: pause, ..self }
    }

    /// The brokers, the urgent one first.
    pub(super) fn servers(&self) -> Vec<(&'static str, RedisOptions)> {
        match &self.brokers {
            Servers::One(broker) => vec![("all", RedisOptions::clone(broker))],
            Servers::Two { high, low } => {
                vec![("high", RedisOptions::clone(high)), ("low", RedisOptions::clone(low))]
            }
        }
    }
}

/// The lists of several queues are moved in one script, which a Cluster does not allow.
fn check(broker: RedisOptions) -> Result<RedisOptions> {
    match broker.is_cluster() {
        true => {
            Err(Error::unsupported("a redis Cluster as a broker: use two servers, high and low"))
        }
        false => Ok(broker),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(brokers: &[&str]) -> Result<Vec<&'static str>> {
        let ledger = PostgresOptions::of_url("postgres://user@host/database")?;
        let brokers: Vec<_> = brokers.iter().map(ToString::to_string).collect();
        let servers = HybridOptions::of_urls(ledger, &brokers)?.servers();
        Ok(servers.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn one_broker_serves_all_priorities_and_two_share_them() {
        assert_eq!(read(&["redis://a:1/?prefix=x"]).unwrap(), ["all"]);
        assert_eq!(read(&["low=redis://a:1", "high=redis://b:2"]).unwrap(), ["high", "low"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for brokers in [
            &["high=redis://a:1"][..],
            &["redis://a:1", "low=redis://b:2"],
            &["high=redis://a:1", "high=redis://b:2"],
            &["redis+cluster://a:1,b:2"],
            &["middle=redis://a:1"],
            &["redis+asynq://a:1"],
            &[],
        ] {
            assert!(read(brokers).is_err(), "{brokers:?}");
        }
    }
}
