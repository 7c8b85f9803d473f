//! Those who submit: threads with a connection each, and a mix of everything that a task can be.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use windlass_core::TaskId;
use windlass_core::dice::Dice;
use windlass_testkit::audit::{Digest, Fact};

use super::handler::{self, Wish};
use super::http::{Answer, Client, Port, Request};
use super::journal::Journal;
use crate::Result;
use crate::torture::chance::{below, pick};

/// Threads that submit. Their pauses make a load that the machine can work off while processes die.
const SUBMITTERS: u64 = 4;
const PAUSE_MS_MAX: u64 = 160;
/// Between tries while no server is there.
const AWAY_PAUSE: Duration = Duration::from_millis(30);
/// More than any task meets, except for a few that are meant to die of it.
const MAX_CRASHES: u32 = 1_000;

/// The timeout of tasks that are too slow for it, and how slow they are.
const TIMEOUT_MS: u64 = 400;
const TOO_LONG_MS: u64 = 5_000;

/// The queues of the load, as `windlass worker` takes them.
pub(super) const QUEUES: [(&str, u32); 2] = [("torture-a", 3), ("torture-b", 1)];

/// How long runs take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    AreShort,
    SomeOutlastALease,
}

/// What the tasks of a load are like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    pub(super) runs: Runs,
    pub(super) has_priorities: bool,
}

/// The submitting threads; they end when this is dropped.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result>>,
}

impl Load {
    pub(super) fn start(folder: &Path, server: &Port, seed: u64, mix: Mix) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut load = Self { is_over, threads: Vec::new() };
        for number in 0..SUBMITTERS {
            let submitter = Submitter {
                name: format!("s{number}"),
                journal: Journal::open(folder, &format!("submits-{number}"))?,
                server: server.clone(),
                client: Client::new(server.clone()),
                dice: Dice::seeded(seed ^ (number + 1)),
                mix,
                is_over: Arc::clone(&load.is_over),
                serial: AtomicU32::new(0),
            };
            load.threads.push(thread::spawn(move || submitter.run()));
        }
        Ok(load)
    }

    /// Ends it; an error when a submitter met something that no fault explains.
    pub(super) fn stop(mut self) -> Result {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a submitter panicked")??;
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // Whoever drops it unasked has a complaint of its own.
            let _ = thread.join();
        }
    }
}

struct Submitter {
    name: String,
    journal: Journal,
    server: Port,
    client: Client,
    dice: Dice,
    mix: Mix,
    is_over: Arc<AtomicBool>,
    serial: AtomicU32,
}

/// A task to be submitted.
#[derive(Debug, Clone)]
struct Draft {
    key: String,
    payload: String,
    queue: &'static str,
    priority: &'static str,
    delay_ms: u64,
    timeout_ms: Option<u64>,
    max_retries: u32,
    max_crashes: u32,
    idempotency_key: Option<String>,
}

/// How a submit ended.
enum Submitted {
    As(TaskId),
    Refused {
        status: u16,
        problem: String,
    },
    /// Never sent, or without an answer.
    Unknown,
}

/// The part of an answer that is needed. The payload in it is no text for every reader.
#[derive(Deserialize)]
struct Told {
    id: String,
}

impl Submitter {
    fn run(mut self) -> Result {
        while !self.is_over.load(Ordering::SeqCst) {
            match below(&mut self.dice, 100) {
                0..5 => self.cancel_one()?,
                5..15 => self.repeat_one()?,
                15..17 => self.be_refused()?,
                17..100 => {
                    let draft = self.draft();
                    self.submit(&draft)?;
                }
                _ => {}
            }
            thread::sleep(Duration::from_millis(below(&mut self.dice, PAUSE_MS_MAX)));
        }
        Ok(())
    }

    fn draft(&mut self) -> Draft {
        let dice = &mut self.dice;
        let (wish, max_retries) = match below(dice, 100) {
            0..74 => (Wish::Complete, 3),
            74..75 => (Wish::SnoozeOnce, 3),
            75..92 => (Wish::FailOnce, 3),
            92..96 => (Wish::FailAlways, 1),
            _ => (Wish::Discard, 3),
        };
        let takes_ms = match below(dice, 100) {
            0..3 if self.mix.runs == Runs::SomeOutlastALease => 4_000 + below(dice, 2_000),
            0..12 => 300 + below(dice, 1_000),
            _ => below(dice, 50),
        };
        let delay_ms = if below(dice, 6) == 0 { below(dice, 2_000) } else { 0 };
        // Beyond a KiB stores may keep payloads apart.
        let padding = if below(dice, 8) == 0 { 20_000 } else { below(dice, 100) };
        let max_crashes = if below(dice, 10) == 0 { 3 } else { MAX_CRASHES };
        let priority = *pick(&["low", "normal", "normal", "high", "critical"], dice);
        let priority = if self.mix.has_priorities { priority } else { "normal" };
        let (queue, _) = *pick(&QUEUES, dice);
        // Some never come to their end in time.
        let is_too_slow = wish == Wish::Complete && below(dice, 30) == 0;
        let timeout_ms = is_too_slow.then_some(TIMEOUT_MS);
        let takes_ms = if is_too_slow { TOO_LONG_MS } else { takes_ms };
        let max_retries = if is_too_slow { 1 } else { max_retries };
        let key = format!("{}-{}", self.name, self.serial.fetch_add(1, Ordering::Relaxed));
        let takes = Duration::from_millis(takes_ms);
        let padding = usize::try_from(padding).unwrap_or(0);
        let payload = handler::payload(&key, wish, takes, padding);
        let idempotency_key = None;
        Draft {
            key,
            payload,
            queue,
            priority,
            delay_ms,
            timeout_ms,
            max_retries,
            max_crashes,
            idempotency_key,
        }
    }

    fn submit(&mut self, draft: &Draft) -> Result<Submitted> {
        let submitted = submit(&mut self.client, &self.journal, draft)?;
        match &submitted {
            Submitted::Refused { status, problem } => {
                Err(format!("a sound submit was refused with {status}: {problem}").into())
            }
            Submitted::As(_) | Submitted::Unknown => Ok(submitted),
        }
    }

    /// One task under one idempotency key, sent by two at the same time, and again by each until it
    /// is answered.
    fn repeat_one(&mut self) -> Result {
        let mut draft = self.draft();
        draft.idempotency_key = Some(draft.key.clone());
        let mut twin = Client::new(self.server.clone());
        let (journal, is_over) = (&self.journal, &self.is_over);
        thread::scope(|scope| {
            let other = scope.spawn(|| insist(&mut twin, journal, &draft, is_over));
            insist(&mut self.client, journal, &draft, is_over)?;
            other.join().map_err(|_| "a twin panicked")?
        })
    }

    /// A task that is called off, mostly before its time, sometimes while it runs; sometimes its
    /// record is removed then.
    fn cancel_one(&mut self) -> Result {
        let mut draft = self.draft();
        let is_meant_to_run = below(&mut self.dice, 3) == 0;
        draft.delay_ms = if is_meant_to_run { 0 } else { 2_000 };
        if is_meant_to_run {
            let takes = Duration::from_millis(1_500);
            draft.timeout_ms = None;
            draft.payload = handler::payload(&draft.key, Wish::Complete, takes, 0);
        }
        let Submitted::As(id) = self.submit(&draft)? else { return Ok(()) };
        thread::sleep(Duration::from_millis(below(&mut self.dice, 700)));
        let path = format!("/api/v1/tasks/{id}/cancel");
        let sent = Fact::CancelSent { id: id.clone() };
        let status = self.ask(&Request { method: "POST", path: &path, body: b"" }, sent)?;
        match status {
            Some(200) => {
                let fact = Fact::CancelAcknowledged { id: id.clone(), is_running: false };
                self.journal.say(fact)?;
                if below(&mut self.dice, 2) == 0 {
                    self.remove(id)?;
                }
            }
            Some(202) => self.journal.say(Fact::CancelAcknowledged { id, is_running: true })?,
            // Finished already; or lost, which the auditor will see; or not answered.
            Some(404 | 409) | None => {}
            Some(status) => return Err(format!("a cancel was answered with {status}").into()),
        }
        Ok(())
    }

    fn remove(&mut self, id: TaskId) -> Result {
        let path = format!("/api/v1/tasks/{id}?purge=true");
        let sent = Fact::DeleteSent { id: id.clone() };
        let status = self.ask(&Request { method: "DELETE", path: &path, body: b"" }, sent)?;
        match status {
            Some(200 | 204) => self.journal.say(Fact::DeleteAcknowledged { id }),
            Some(404) | None => Ok(()),
            Some(status) => Err(format!("a removal was answered with {status}").into()),
        }
    }

    /// Something that must be refused: another task under a key that is taken, or nonsense.
    fn be_refused(&mut self) -> Result {
        let mut first = self.draft();
        first.idempotency_key = Some(first.key.clone());
        let Submitted::As(_) = self.submit(&first)? else { return Ok(()) };
        let mut second = self.draft();
        second.idempotency_key = first.idempotency_key;
        // Some stores keep the keys of each queue apart.
        second.queue = first.queue;
        if below(&mut self.dice, 2) == 0 {
            second.priority = "most-urgent";
        }
        match submit(&mut self.client, &self.journal, &second)? {
            Submitted::As(id) => Err(format!("a submit was taken as {id}: {second:?}").into()),
            Submitted::Refused { .. } | Submitted::Unknown => Ok(()),
        }
    }

    /// Sends something about a task; no status without an answer.
    fn ask(&mut self, request: &Request<'_>, sent: Fact) -> Result<Option<u16>> {
        let mut said = Ok(());
        let journal = &self.journal;
        let answer = self.client.call(request, || said = journal.say(sent));
        said?;
        Ok(match answer {
            Answer::Said { status, .. } if status < 500 => Some(status),
            Answer::Said { .. } | Answer::Ambiguous | Answer::Unsent => None,
        })
    }
}

/// Submits again and again until there is an answer, or the load is over.
fn insist(client: &mut Client, journal: &Journal, draft: &Draft, is_over: &AtomicBool) -> Result {
    while !is_over.load(Ordering::SeqCst) {
        match submit(client, journal, draft)? {
            Submitted::As(_) => return Ok(()),
            Submitted::Refused { status, problem } => {
                return Err(format!("a repeated submit was refused: {status} {problem}").into());
            }
            Submitted::Unknown => thread::sleep(AWAY_PAUSE),
        }
    }
    Ok(())
}

fn submit(client: &mut Client, journal: &Journal, draft: &Draft) -> Result<Submitted> {
    let body = body_of(draft);
    let request = Request { method: "POST", path: "/api/v1/tasks", body: body.as_bytes() };
    let key = draft.key.clone();
    let sent = Fact::SubmitSent {
        key: key.clone(),
        payload: Digest::of(draft.payload.as_bytes()),
        delay_ms: draft.delay_ms,
        max_retries: draft.max_retries,
    };
    let mut said = Ok(());
    let answer = client.call(&request, || said = journal.say(sent));
    said?;
    match answer {
        Answer::Said { status: 200 | 201, body } => {
            let id = TaskId::new(serde_json::from_slice::<Told>(&body)?.id);
            journal.say(Fact::SubmitAcknowledged { key, id: id.clone() })?;
            Ok(Submitted::As(id))
        }
        Answer::Said { status, body } if (400..500).contains(&status) => {
            journal.say(Fact::SubmitRefused { key })?;
            let problem = String::from_utf8_lossy(&body).into_owned();
            Ok(Submitted::Refused { status, problem })
        }
        Answer::Said { .. } | Answer::Ambiguous => Ok(Submitted::Unknown),
        Answer::Unsent => {
            thread::sleep(AWAY_PAUSE);
            Ok(Submitted::Unknown)
        }
    }
}

fn body_of(draft: &Draft) -> String {
    let mut body = json!({
        "type": "torture",
        "queue": draft.queue,
        "priority": draft.priority,
        "max_retries": draft.max_retries,
        "max_crashes": draft.max_crashes,
        // The auditor wants to see what became of them; not every store keeps that unasked.
        "retention": "24h",
    });
    if draft.delay_ms > 0 {
        body["delay"] = json!(format!("{}ms", draft.delay_ms));
    }
    if let Some(timeout_ms) = draft.timeout_ms {
        body["timeout"] = json!(format!("{timeout_ms}ms"));
    }
    if let Some(key) = &draft.idempotency_key {
        body["idempotency_key"] = json!(key);
    }
    // As it is, in front of the rest: as a value it would be written anew, in other bytes.
    let rest = body.to_string();
    format!("{{\"payload\":{},{}", draft.payload, &rest[1..])
}
