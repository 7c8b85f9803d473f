//! Workers: what is kept of one, its signs of life, and its end.

use std::collections::BTreeMap;

use redis::Value;
use windlass_core::store::{Beat, RunOrder, WorkerCard, WorkerRecord};
use windlass_core::{Error, ErrorKind, QueueName, Reason, Result, Timestamp, WorkerId};

use super::{Fleet, LEAVE, ORDER_WORKER, REGISTER, keys, new_name};
use crate::reading::GONE_WORKER_SHOWN;
use crate::redis::options::millis;
use crate::redis::reply::{Reply, next};
use crate::redis::script::Call;
use crate::wakes::News;

/// A worker as `register.lua` writes it.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Known {
    started_at: Timestamp,
    beat_at: Timestamp,
    lease_until: Timestamp,
    gone_at: Option<Timestamp>,
    order: RunOrder,
    card: WorkerCard,
}

/// What a worker is told when it has given a sign of life.
pub(in crate::redis) struct Registered {
    pub(in crate::redis) now: Timestamp,
    pub(in crate::redis) order: RunOrder,
    /// False when the data are not those that this process knew.
    pub(in crate::redis) is_known: bool,
}

impl Known {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (times, rest) = bytes.split_first_chunk::<24>()?;
        let time = |at: usize| {
            let number = times[at..at + 6].iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte));
            Timestamp::from_millis(number)
        };
        let (order, card) = rest.split_first()?;
        Some(Self {
            started_at: time(0),
            beat_at: time(6),
            lease_until: time(12),
            gone_at: Some(time(18)).filter(|at| at.as_millis() > 0),
            order: read_order(*order),
            card: serde_json::from_slice(card).unwrap_or_default(),
        })
    }

    pub(in crate::redis) fn into_record(self, id: WorkerId, running_count: u64) -> WorkerRecord {
        WorkerRecord {
            id,
            card: self.card,
            order: self.order,
            started_at: self.started_at,
            beat_at: self.beat_at,
            lease_until: self.lease_until,
            is_gone: self.gone_at.is_some(),
            running_count,
        }
    }
}

impl Fleet {
    /// Takes a worker's sign of life.
    pub(in crate::redis) async fn register(&self, beat: &Beat) -> Result<Registered> {
        let card = serde_json::to_string(&beat.card).expect("a card is plain JSON");
        let call = self
            .on(&REGISTER)
            .arg(beat.worker.as_str())
            .arg(card)
            .arg(millis(beat.lease))
            .arg(new_name());
        let reply = self.ask(call).await?;
        if reply.is_zero() {
            return Err(Error::lease_lost(format!("beat of worker {}", beat.worker))
                .reason_is(Reason::WorkerLost));
        }
        let mut parts = reply.list()?;
        let now = next(&mut parts, "register")?.time()?;
        let order = next(&mut parts, "register")?.bytes()?;
        let is_known = self.recognise(&next(&mut parts, "register")?.text()?);
        let order = read_order(order.first().copied().unwrap_or_default());
        Ok(Registered { now, order, is_known })
    }

    /// Ends a worker for ever; answers the queues in which it may hold something, none when nobody knows
    /// it.
    pub(in crate::redis) async fn end_worker(&self, worker: &WorkerId) -> Result<Vec<QueueName>> {
        let call = self.on(&LEAVE).arg(worker.as_str());
        let (reply, queues) =
            futures_util::future::try_join(self.ask(call), self.queue_names()).await?;
        Ok(if reply.is_zero() { Vec::new() } else { queues })
    }

    /// Notes that a worker that is gone holds nothing any more.
    pub(in crate::redis) async fn forget_unclean(&self, worker: &WorkerId) -> Result<()> {
        let mut command = redis::cmd("SREM");
        command.arg(keys::unclean(self.stem())).arg(worker.as_str());
        self.link.command("forget a worker", &command).await.map(drop)
    }

    /// Until when the lease of a worker lasts; an error for one that is unknown or gone.
    pub(in crate::redis) async fn look_up_lease(&self, worker: &WorkerId) -> Result<i64> {
        let mut command = redis::cmd("HGET");
        command.arg(keys::workers(self.stem())).arg(worker.as_str());
        let value = self.link.command("look a worker up", &command).await?;
        let known = match value {
            Value::BulkString(bytes) => Known::read(&bytes),
            _ => None,
        };
        match known {
            Some(known) if known.gone_at.is_none() => Ok(known.lease_until.as_millis()),
            _ => Err(Error::lease_lost(format!("claim for worker {worker}"))
                .reason_is(Reason::WorkerLost)),
        }
    }

    /// All workers that are shown, by id.
    pub(in crate::redis) async fn known_workers(&self) -> Result<BTreeMap<WorkerId, Known>> {
        let now = self.now().await?;
        let mut command = redis::cmd("HGETALL");
        command.arg(keys::workers(self.stem()));
        let value = self.link.command("read the workers", &command).await?;
        let value = match value {
            Value::Map(pairs) => {
                Value::Array(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())
            }
            other => other,
        };
        let mut parts = Reply::new("read the workers", value).list()?;
        let mut known = BTreeMap::new();
        while let (Some(worker), Some(stored)) = (parts.next(), parts.next()) {
            if let Some(read) = Known::read(&stored.bytes()?) {
                known.insert(WorkerId::new(worker.text()?), read);
            }
        }
        let is_shown =
            |known: &Known| known.gone_at.is_none_or(|at| now.since(at) <= GONE_WORKER_SHOWN);
        known.retain(|_, known| is_shown(known));
        Ok(known)
    }

    /// Keeps an order for a worker until its next beat, and tells it of it.
    pub(in crate::redis) async fn order_worker(
        &self,
        worker: &WorkerId,
        order: RunOrder,
    ) -> Result<()> {
        let call = self
            .on(&ORDER_WORKER)
            .arg(worker.as_str())
            .arg(write_order(order))
            .arg(self.order_news(worker));
        if self.ask(call).await?.is_zero() {
            return Err(Error::new(ErrorKind::NotFound, format!("no worker {worker}")));
        }
        self.common.wakes.tell(News { ordered: vec![worker.clone()], ..News::default() });
        Ok(())
    }

    /// Tells a worker, wherever it is, that it may have orders.
    pub(in crate::redis) async fn tell_of_orders(&self, worker: WorkerId) -> Result<()> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(self.orders_channel()).arg(self.order_news(&worker));
        self.link.command("tell of orders", &command).await?;
        self.common.wakes.tell(News { ordered: vec![worker], ..News::default() });
        Ok(())
    }

    /// The message about orders to a worker: its sender, and the worker.
    fn order_news(&self, worker: &WorkerId) -> String {
        format!("{} w{worker}", self.common.name)
    }

    /// The message about a pause: its sender, and the queue. One message reaches all workers that serve the queue.
    fn pause_news(&self, queue: &QueueName) -> String {
        format!("{} p{queue}", self.common.name)
    }

    /// Takes a message about orders, unless this process has sent it.
    pub(in crate::redis) fn heard_of_orders(&self, payload: &[u8]) {
        let text = String::from_utf8_lossy(payload);
        let Some((sender, about)) = text.split_once(' ') else { return };
        if sender == self.common.name {
            return;
        }
        let mut news = News::default();
        match about.split_at_checked(1) {
            Some(("w", worker)) => news.ordered.push(WorkerId::new(worker)),
            Some(("p", queue)) => news.paused.push(QueueName::stored(queue)),
            _ => return,
        }
        self.common.wakes.tell(news);
    }

    /// Has a queue run or pause by its layout's script, called on the queue's stem. The script itself notifies
    /// other processes of a pause: the process that gives the order may end as soon as the order is answered.
    pub(in crate::redis) async fn order_queue(
        &self,
        call: Call,
        queue: &QueueName,
        order: RunOrder,
    ) -> Result<()> {
        let is_paused = order == RunOrder::Pause;
        let call = call.arg(self.common.options.told_time()).arg(u8::from(is_paused));
        self.ask(call.arg(self.orders_channel()).arg(self.pause_news(queue))).await?;
        let mut news = News::default();
        match is_paused {
            true => news.paused.push(queue.clone()),
            false => news.ready.push(queue.clone()),
        }
        self.common.wakes.tell(news);
        Ok(())
    }
}

const fn write_order(order: RunOrder) -> &'static str {
    match order {
        RunOrder::Run => "r",
        RunOrder::Pause => "p",
        RunOrder::Drain => "d",
    }
}

/// An order that cannot be read counts as "run": a worker must not stop for a reason nobody gave.
fn read_order(stored: u8) -> RunOrder {
    match stored {
        b'p' => RunOrder::Pause,
        b'd' => RunOrder::Drain,
        _ => RunOrder::Run,
    }
}
