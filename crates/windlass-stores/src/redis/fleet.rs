//! A handle on a Redis, and what belongs to no queue there: the leader, documents, workers, the name of
//! the data. Both layouts keep these alike, under a stem of their own.

mod broadcast;
mod document;
mod keys;
mod lead;
mod ping;
mod touch;
mod worker;

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use uuid::Uuid;
use windlass_core::store::{Durability, Duty, Finding, GONE_WORKER_KEPT, Severity, Term};
use windlass_core::{Error, ErrorKind, QueueName, Reason, Result, Timestamp, WorkerId};

use super::connection::{Line, Link};
use super::options::RedisOptions;
use super::reply::{Reply, next};
use super::script::{Call, Script};
use super::server::ServerFacts;
use crate::broadcasts::Broadcasts;
use crate::wakes::Wakes;
pub(super) use ping::{check_memory, or_finding};
pub(super) use touch::Touched;
pub(super) use worker::Registered;

/// What is put in front of every script, of both layouts and of the fleet.
pub(super) const PRELUDE: &str = include_str!("../../lua/prelude.lua");
/// What is put in front of every script that must work on a server whose memory is over its limit.
pub(super) const OVER_LIMIT: &str = include_str!("../../lua/over_limit.lua");

/// Put in front of each script that compares the types of keys.
pub(super) const DAMAGE_PRELUDE: &str = include_str!("../../lua/damage.lua");

macro_rules! scripts {
    ($($name:ident = $($part:ident +)* $file:literal;)*) => {
        $(static $name: LazyLock<Script> = LazyLock::new(|| {
            let own = include_str!(concat!("../../lua/fleet/", $file, ".lua"));
            Script::new($file, &[PRELUDE, $($part,)* own])
        });)*
    };
}

scripts! {
    DAMAGE = DAMAGE_PRELUDE + "damage";
    DUTY = OVER_LIMIT + "duty";
    FORGET_QUEUE = OVER_LIMIT + "forget_queue";
    LEAD = OVER_LIMIT + "lead";
    LEAVE = OVER_LIMIT + "leave";
    LOAD = "load";
    ORDER_WORKER = OVER_LIMIT + "order_worker";
    PING = "ping";
    PUBLISH = "publish";
    REGISTER = OVER_LIMIT + "register";
    SAVE = OVER_LIMIT + "save";
    TOUCH = OVER_LIMIT + "touch";
}

/// One handle: a connection of its own, driven by the runtime that uses it.
pub(super) struct Fleet {
    pub(super) common: Arc<Common>,
    pub(super) link: Link,
    names: Names,
}

/// What the keys outside the queues are called.
#[derive(Clone)]
pub(super) struct Names {
    /// In front of all keys of the fleet.
    pub(super) stem: String,
    /// The names of all queues.
    pub(super) queues: String,
}

/// What all handles of one opening share.
pub(super) struct Common {
    pub(super) options: Arc<RedisOptions>,
    /// Sets what this process tells apart from what others do: it has rung for that already.
    name: String,
    pub(super) facts: ServerFacts,
    pub(super) wakes: Wakes,
    broadcasts: Arc<Broadcasts>,
    data: Mutex<Data>,
}

/// What is known of the data as such.
#[derive(Default)]
struct Data {
    /// Their name as it was last seen.
    born: Option<String>,
    /// They were not the same any more.
    was_wiped: bool,
}

/// What a leader has to do with.
pub(super) struct Begun {
    pub(super) now: Timestamp,
    /// When the next lease is over.
    pub(super) next_due: Option<Timestamp>,
    /// Workers that are gone and may still hold tasks.
    pub(super) unclean: Vec<WorkerId>,
    /// There are more workers to forget.
    pub(super) has_more: bool,
}

impl Fleet {
    /// Opens the first handle; asks the server what it promises, and sees whether windlass has been here
    /// before.
    pub(super) async fn open(options: RedisOptions, names: Names) -> Result<Self> {
        let options = Arc::new(options);
        let link = Link::new(Arc::clone(&options));
        let facts = ServerFacts::read(&link).await?;
        facts.check(options.allows_eviction)?;
        let common = Arc::new(Common {
            options,
            name: new_name(),
            facts,
            wakes: Wakes::new(|| {}),
            broadcasts: Arc::default(),
            data: Mutex::default(),
        });
        let fleet = Self { common, link, names };
        fleet.find_data().await?;
        Ok(fleet)
    }

    /// Another handle on the same data.
    pub(super) fn another(&self) -> Self {
        let common = Arc::clone(&self.common);
        let link = Link::new(Arc::clone(&common.options));
        Self { common, link, names: self.names.clone() }
    }

    /// In front of the keys that belong to no queue.
    pub(super) fn stem(&self) -> &str {
        &self.names.stem
    }

    /// The channel that tells of orders to workers.
    pub(super) fn orders_channel(&self) -> String {
        keys::orders(self.stem())
    }

    /// Calls a script.
    pub(super) async fn ask(&self, call: Call) -> Result<Reply> {
        let name = call.script.name;
        Ok(Reply::new(name, self.link.call(call).await?))
    }

    /// Calls a script over a connection as it was when the call was made.
    pub(super) async fn ask_over(line: &mut Line<'_>, call: Call) -> Result<Reply> {
        let name = call.script.name;
        Ok(Reply::new(name, line.call(call).await?))
    }

    /// Begins a call of a script of the fleet.
    fn on(&self, script: &'static Script) -> Call {
        script.on(&[&self.names.stem]).arg(self.common.options.told_time())
    }

    /// Groups queues by what one call may name: all of them, or on a Cluster each by itself.
    pub(super) fn by_slot<'a, T>(&self, queues: &'a [T]) -> std::slice::Chunks<'a, T> {
        queues.chunks(if self.common.options.is_cluster() { 1 } else { queues.len().max(1) })
    }

    /// The store's clock.
    pub(super) async fn now(&self) -> Result<Timestamp> {
        self.link.now().await
    }

    /// Puts names of queues on record.
    pub(super) async fn add_queues<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName> + Clone,
    ) -> Result<()> {
        let mut command = redis::cmd("SADD");
        command.arg(&self.names.queues);
        for queue in queues.clone() {
            command.arg(queue.as_str());
        }
        match self.link.command("register a queue", &command).await {
            Ok(_) => Ok(()),
            // A full server takes no new name, and need not for queues that it knows.
            Err(error) if error.reason() == Reason::StorageFull => {
                let known = self.queue_names().await?;
                let is_known = |queue: &QueueName| known.binary_search(queue).is_ok();
                if queues.into_iter().all(is_known) { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// All queues on record, by name.
    pub(super) async fn queue_names(&self) -> Result<Vec<QueueName>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(&self.names.queues);
        let value = self.link.command("read the queues", &command).await?;
        let value = match value {
            redis::Value::Set(members) => redis::Value::Array(members),
            other => other,
        };
        let mut queues: Vec<_> = Reply::new("read the queues", value)
            .list()?
            .map(|name| name.text().map(|name| QueueName::stored(&name)))
            .collect::<Result<_>>()?;
        queues.sort();
        Ok(queues)
    }

    /// Begins a piece of upkeep, if the term is not stale.
    pub(super) async fn begin_duty(&self, duty: Duty, what: &str) -> Result<Begun> {
        let kept_ms = GONE_WORKER_KEPT.as_millis() as u64;
        let call = self.on(&DUTY).arg(duty.term.to_string()).arg(what).arg(kept_ms);
        let reply = self.ask(call).await?;
        if reply.is_zero() {
            return Err(stale_term(Some(duty.term)));
        }
        let mut parts = reply.list()?;
        let now = next(&mut parts, "duty")?.time()?;
        let next_due = next(&mut parts, "duty")?.time_if_any()?;
        let unclean = next(&mut parts, "duty")?.list()?;
        let mut unclean: Vec<_> =
            unclean.map(|worker| worker.text().map(WorkerId::new)).collect::<Result<_>>()?;
        unclean.sort();
        let has_more = next(&mut parts, "duty")?.number()? == 1;
        Ok(Begun { now, next_due, unclean, has_more })
    }

    /// The same, with all queues on record.
    pub(super) async fn begin(&self, duty: Duty, what: &str) -> Result<(Begun, Vec<QueueName>)> {
        let begun = self.begin_duty(duty, what);
        futures_util::future::try_join(begun, self.queue_names()).await
    }

    /// Sees whether anybody has been here before, and gives the data a name if they have none.
    async fn find_data(&self) -> Result<()> {
        let born = keys::born(self.stem());
        let mut get = redis::cmd("GET");
        get.arg(&born);
        let mut found = match self.link.command("find the data", &get).await {
            // Pings report a key of a wrong type; it must not keep the doctor from the data.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            found => found?,
        };
        // A server that is full takes no name; data that have one are opened there all the same.
        if found == redis::Value::Nil && self.common.options.creates {
            let mut set = redis::cmd("SET");
            set.arg(&born).arg(new_name()).arg("NX");
            self.link.command("name the data", &set).await?;
            found = self.link.command("find the data", &get).await?;
        }
        match found {
            redis::Value::BulkString(name) => {
                self.recognise(&String::from_utf8_lossy(&name));
                Ok(())
            }
            // Others may have been here, with data that windlass can read.
            _ if !self.queue_names().await?.is_empty() => Ok(()),
            _ => {
                let text = "no windlass data in this redis under this prefix";
                Err(Error::new(ErrorKind::NotFound, text))
            }
        }
    }

    /// Compares the name of the data with the one that was seen before; false when someone has wiped
    /// them, or the server came back without them.
    pub(super) fn recognise(&self, name: &str) -> bool {
        let mut data = self.common.data.lock();
        if data.born.as_deref() == Some(name) {
            return true;
        }
        let is_first = data.born.replace(name.to_owned()).is_none();
        if !is_first {
            data.was_wiped = true;
            tracing::error!(
                prefix = self.common.options.key_prefix(),
                "the data in redis are not those that were there before: they were wiped, or the \
                 server came back without them; every task in them is lost"
            );
        }
        is_first
    }

    /// What the server cannot promise.
    pub(super) fn promises(&self, facts: &ServerFacts) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Durability::Window { loss } = &facts.durability {
            let severity = match self.common.options.expects_durable {
                true => Severity::Warning,
                false => Severity::Info,
            };
            findings.push(Finding {
                severity,
                subject: "durability",
                text: loss.clone(),
                advice: "set appendonly yes and appendfsync always".into(),
            });
        }
        if self.common.data.lock().was_wiped {
            findings.push(Finding {
                severity: Severity::Problem,
                subject: "data",
                text: "the data were wiped while this process used them, or the server came back \
                       without them; every task in them is lost"
                    .into(),
                advice:
                    "find out who runs FLUSHALL, or have the server keep its data (appendonly yes)"
                        .into(),
            });
        }
        if let Some(policy) = facts.evicting() {
            findings.push(Finding {
                severity: Severity::Problem,
                subject: "memory",
                text: format!(
                    "maxmemory-policy {policy} throws tasks away when the memory is full"
                ),
                advice: "set maxmemory-policy noeviction".into(),
            });
        }
        findings
    }
}

/// A name that nobody has had before. Data are given one when they have none, so that data that were made
/// anew are told from those before.
fn new_name() -> String {
    Uuid::new_v4().simple().to_string()
}

pub(super) fn stale_term(term: Option<Term>) -> Error {
    let text = term.map_or_else(|| "upkeep".to_owned(), |term| format!("upkeep in term {term}"));
    Error::lease_lost(text).reason_is(Reason::StaleTerm)
}
