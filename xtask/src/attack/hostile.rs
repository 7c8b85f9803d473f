//! What hostile clients do.

mod bodies;
mod crowds;
mod inputs;
mod readers;

use std::future::Future;
use std::io;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{Attack, Target};
use crate::Result;

/// What was seen of an attack, and whether the server did what it should.
pub(super) struct Seen {
    pub(super) is_fine: bool,
    pub(super) figures: Value,
}

pub(super) async fn run(attack: Attack, target: &Target) -> Result<Seen> {
    match attack {
        Attack::SlowBodies => bodies::slow_bodies(target).await,
        Attack::SlowHeads => bodies::slow_heads(target).await,
        Attack::SlowReaders => readers::slow_readers(target).await,
        Attack::SlowStreams => readers::slow_streams(target).await,
        Attack::SlowLists => readers::slow_lists(target).await,
        Attack::SlowWorkers => readers::slow_workers(target).await,
        Attack::SlowListeners => readers::slow_listeners(target).await,
        Attack::LargeBatches => inputs::large_batches(target).await,
        Attack::HostileNames => inputs::hostile_names(target).await,
        Attack::HostileJson => inputs::hostile_json(target).await,
        Attack::Rebinding => inputs::rebinding(target).await,
        Attack::LeasesWithoutId => crowds::leases_without_id(target).await,
        Attack::Waits => crowds::waits(target).await,
        Attack::Resets => crowds::resets(target).await,
    }
}

/// Has so many connections do the same at once; answers what came of each that could be made.
async fn crowd<T, F>(
    target: &Target,
    count: usize,
    each: impl Fn(TcpStream) -> F,
) -> Result<Vec<io::Result<T>>>
where
    F: Future<Output = io::Result<T>>,
{
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(target.client.connect().await?);
    }
    Ok(join_all(streams.into_iter().map(each)).await)
}

fn failed<T>(outcomes: &[io::Result<T>]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_err()).count()
}
