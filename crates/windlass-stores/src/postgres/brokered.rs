//! What a store with a broker in front asks of its ledger.

mod sweep;

use std::collections::HashMap;
use std::sync::Arc;

use windlass_core::store::{ApplyParams, ClaimParams};
use windlass_core::{QueueName, Result, Transition, WorkerId};

use super::apply::is_success;
pub(crate) use super::apply::{Claimable, Reported};
pub(crate) use super::claim::{Given, Unused, Wanted, segments};
use super::outbox::{Carrier, Outbox};
pub(crate) use super::pool::to_the_end;
use super::{PostgresOptions, PostgresStore, sql};
use crate::wakes::Wakes;
pub(crate) use sweep::LaneCount;

impl PostgresStore {
    /// The same store for one who carries references to brokers.
    pub(crate) fn with_carrier(&self, carrier: Arc<dyn Carrier>) -> Self {
        let plain = &self.shared.options;
        let outbox = Some(Outbox::new(plain, carrier));
        let options = PostgresOptions { outbox, ..PostgresOptions::clone(plain) };
        Self::on(Arc::new(options), Arc::clone(&self.shared.wakes))
    }

    /// Says that brokers of these names are in use. From now on the schema has an outbox, until nobody
    /// has said so for a minute.
    pub(crate) async fn use_brokers(&self, names: Vec<&'static str>) -> Result<()> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let used = held.session.all(sql::BROKER_USE, &[&names]).await;
            held.back();
            used.map(drop)
        })
        .await
    }

    /// Says so unless somebody has said it a moment ago: hundreds of workers need not.
    pub(crate) async fn use_brokers_if_unsaid(&self, names: Vec<&'static str>) -> Result<()> {
        let is_fresh = self.run(|shared| async move {
            let held = shared.heartbeats.get().await?;
            let row = held.session.one(sql::BROKER_FRESH, &[&names]).await;
            held.back();
            Ok((row?.is_some_and(|row| row.get(0)), names))
        });
        match is_fresh.await? {
            (true, _) => Ok(()),
            (false, names) => self.use_brokers(names).await,
        }
    }

    /// True for a store that may make what is not there.
    pub(crate) fn creates(&self) -> bool {
        self.shared.options.creates
    }

    /// The same store on connections of its own.
    pub(crate) fn another(&self) -> Self {
        Self::on(Arc::clone(&self.shared.options), Arc::clone(&self.shared.wakes))
    }

    /// Whom the store wakes in this process.
    pub(crate) fn wakes(&self) -> &Arc<Wakes> {
        &self.shared.wakes
    }

    /// Tells the schema from any other.
    pub(crate) async fn schema_identity(&self) -> Result<String> {
        self.run(|shared| async move { shared.identity().await }).await
    }

    /// The numbers of queues, which get one if they have none. One that somebody's open transaction is
    /// making has none yet.
    pub(crate) async fn queue_numbers(
        &self,
        queues: Vec<QueueName>,
    ) -> Result<HashMap<QueueName, i32>> {
        let known = self.shared.queues.known();
        let number = |queue: &QueueName| Some((queue.clone(), known.id(queue.as_str())?));
        // Nearly always, and on the way of every claim: nobody else need be asked.
        if let Some(all) = queues.iter().map(number).collect() {
            return Ok(all);
        }
        self.run(|shared| async move {
            let session = shared.submits.session().await?;
            let names = queues.iter().map(QueueName::as_str);
            let known = shared.queues.learn(&session, &shared.pool, names).await?;
            let number = |queue: QueueName| known.id(queue.as_str()).map(|number| (queue, number));
            Ok(queues.into_iter().filter_map(number).collect())
        })
        .await
    }

    /// Claims what references lead to; from the lanes of the quotas where there are none. Only within
    /// work that runs to its end.
    pub(crate) async fn claim_by(
        &self,
        params: &ClaimParams,
        references: Option<&[Wanted]>,
    ) -> Result<Given> {
        let session = self.shared.work.session().await?;
        self.shared.claim_by(&session, params, references).await
    }

    /// Records endings, and claims behind them what was found meanwhile. Only within work that runs to
    /// its end.
    pub(crate) async fn apply_by(
        &self,
        params: &ApplyParams,
        found: impl Future<Output = Claimable>,
    ) -> Result<Reported> {
        self.shared.apply_by(params, found).await
    }

    /// Hands out what claims have left over, if there is anything.
    pub(crate) fn hand_out_rests(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.shared.options.outbox.as_ref().and_then(Outbox::hand_out_rests)
    }

    /// Which of these workers are gone.
    pub(crate) async fn gone_among(&self, workers: Vec<String>) -> Result<Vec<String>> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let rows = held.session.all(sql::WORKERS_GONE, &[&workers]).await;
            held.back();
            Ok(rows?.iter().map(|row| row.get(0)).collect())
        })
        .await
    }

    /// Refuses a worker that is unknown or gone.
    pub(crate) async fn check_claimer(&self, worker: WorkerId) -> Result<()> {
        let nothing = ClaimParams { worker, quotas: Vec::new(), limit: 0, suspects_at_most: 0 };
        self.claim_by(&nothing, None).await.map(drop)
    }
}

/// True when no ending makes a task pending: a claim need not wait for their answer.
pub(crate) fn are_successes(transitions: &[Transition]) -> bool {
    transitions.iter().all(is_success)
}
