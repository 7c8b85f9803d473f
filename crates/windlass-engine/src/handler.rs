//! Handlers: what runs a kind of task, and the table of them that a worker has.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use windlass_core::store::HandledKinds;
use windlass_core::{Ending, Error, Kind, QueueName, Result};

use crate::context::{Context, RunContext};
use crate::failure::{Failure, Outcome};
use crate::hooks::Hooks;
use crate::slots::Slot;
use crate::task::{Task, encode_result};

/// Runs one kind of task. Any `async fn(T, Context<S>) -> Outcome<T::Output>` is one; a struct that
/// needs more can implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle tasks of this worker",
    label = "not a handler for a worker with state `{S}`",
    note = "a handler is `async fn(task: T, cx: Context<S>) -> Outcome<T::Output>`, where `T` implements `Task` and `S` is the type given to `.state(…)`",
    note = "a worker without `.state(…)` has the state `()`: its handlers take `Context<()>`"
)]
pub trait Handler<T: Task, S>: Send + Sync + 'static {
    /// Runs one task.
    fn run(&self, task: T, cx: Context<S>) -> impl Future<Output = Outcome<T::Output>> + Send;
}

impl<T, S, F, R> Handler<T, S> for F
where
    T: Task,
    F: Fn(T, Context<S>) -> R + Send + Sync + 'static,
    R: Run<T::Output> + Send,
{
    fn run(&self, task: T, cx: Context<S>) -> impl Future<Output = Outcome<T::Output>> + Send {
        self(task, cx)
    }
}

/// What an async handler returns. A name of its own for the sake of the compiler's messages.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this handler is not an `async fn` that returns `Outcome<{O}>`",
    label = "returns `{Self}`",
    note = "the output of a handler is the `Output` of its task, here `{O}`",
    note = "a function without `async`, which blocks its thread, is added by `.handle_blocking(…)`"
)]
pub trait Run<O>: Future<Output = Outcome<O>> {}

#[diagnostic::do_not_recommend]
impl<O, R: Future<Output = Outcome<O>>> Run<O> for R {}

/// A task of whatever kind, as it was submitted: what the handlers get that
/// [`WorkerBuilder::handle_any`](crate::WorkerBuilder::handle_any) and
/// [`WorkerBuilder::handle_raw`](crate::WorkerBuilder::handle_raw) add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTask {
    /// The kind under which it was submitted.
    pub kind: Kind,
    /// What it carries: JSON, if it comes from this library.
    pub payload: Bytes,
}

/// A run under way; ends with what it came to.
pub(crate) type Running = Pin<Box<dyn Future<Output = Ending> + Send>>;

/// A handler that has forgotten its types.
type Erased = Box<dyn Fn(Bytes, RunContext, Arc<Slot>) -> Running + Send + Sync>;

/// The handlers of a worker, by kind.
#[derive(Default)]
pub(crate) struct Registry {
    handlers: HashMap<&'static str, Erased>,
    /// Runs what no other handler knows.
    default: Option<Erased>,
    /// Where tasks of each kind go by default.
    queues: Vec<(&'static str, String)>,
    /// The first contradiction among the handlers.
    fault: Option<String>,
    pub(crate) hooks: Hooks,
}

impl Registry {
    /// Adds an async handler.
    pub(crate) fn add<T, S, H>(&mut self, handler: H, state: Arc<S>)
    where
        T: Task,
        S: Send + Sync + 'static,
        H: Handler<T, S>,
    {
        let handler = Arc::new(handler);
        let run = move |payload: Bytes, run: RunContext, slot: Arc<Slot>| -> Running {
            let (handler, cx) = (Arc::clone(&handler), run.with_state(Arc::clone(&state)));
            Box::pin(async move {
                let _slot = slot;
                match decode::<T>(&payload) {
                    Ok(task) => ending(handler.run(task, cx).await),
                    Err(failure) => failure.into_ending(),
                }
            })
        };
        self.add_typed::<T>(Box::new(run));
    }

    /// Adds a handler that blocks its thread.
    pub(crate) fn add_blocking<T, S, F>(&mut self, handler: F, state: Arc<S>)
    where
        T: Task,
        S: Send + Sync + 'static,
        F: Fn(T, Context<S>) -> Outcome<T::Output> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        let run = move |payload: Bytes, run: RunContext, slot: Arc<Slot>| -> Running {
            let (handler, cx) = (Arc::clone(&handler), run.with_state(Arc::clone(&state)));
            let work = move || {
                // Nobody can stop a blocking handler: its slot stays taken until it returns, also
                // when its run was given up long before.
                let _slot = slot;
                match decode::<T>(&payload) {
                    Ok(task) => ending(handler(task, cx)),
                    Err(failure) => failure.into_ending(),
                }
            };
            Box::pin(async move {
                // On its own thread nobody knows otherwise what its logs and spans belong to.
                let span = tracing::Span::current();
                match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
                    Ok(ending) => ending,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => Ending::Released,
                }
            })
        };
        self.add_typed::<T>(Box::new(run));
    }

    /// Sets the handler of all kinds that no other knows.
    pub(crate) fn add_default<S, F, R>(&mut self, handler: F, state: Arc<S>)
    where
        S: Send + Sync + 'static,
        F: Fn(RawTask, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome<Bytes>> + Send + 'static,
    {
        if self.default.replace(raw(handler, state)).is_some() {
            self.refuse("there are two handlers for any kind".into());
        }
    }

    /// Adds a handler of one kind that reads and writes bytes.
    pub(crate) fn add_raw<S, F, R>(&mut self, kind: &'static str, handler: F, state: Arc<S>)
    where
        S: Send + Sync + 'static,
        F: Fn(RawTask, Context<S>) -> R + Send + Sync + 'static,
        R: Future<Output = Outcome<Bytes>> + Send + 'static,
    {
        self.insert(kind, raw(handler, state));
    }

    /// Fails if handlers contradict each other or a kind is invalid.
    pub(crate) fn check(&self) -> Result<()> {
        self.fault.as_ref().map_or(Ok(()), |fault| Err(Error::invalid(fault.clone())))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty() && self.default.is_none()
    }

    /// True where there is a handler for tasks of this kind.
    pub(crate) fn handles(&self, kind: &Kind) -> bool {
        self.default.is_some() || self.handlers.contains_key(kind.as_str())
    }

    /// The kinds for a worker's card; nothing where there is a handler of every kind.
    pub(crate) fn kinds(&self) -> Option<HandledKinds> {
        if self.default.is_some() {
            return None;
        }
        HandledKinds::new(self.handlers.keys().map(|kind| Kind::stored(kind)))
    }

    /// The kinds whose tasks go, unless their submit says otherwise, to a queue that is not among
    /// these.
    pub(crate) fn unserved<'a>(
        &'a self,
        queues: &'a [(QueueName, u32)],
    ) -> impl Iterator<Item = &'a (&'static str, String)> {
        let is_served = |name: &str| queues.iter().any(|(queue, _)| queue.as_str() == name);
        self.queues.iter().filter(move |(_, queue)| !is_served(queue))
    }

    /// Starts a task; nothing when no handler knows its kind.
    pub(crate) fn start(
        &self,
        kind: &str,
        payload: Bytes,
        run: RunContext,
        slot: Arc<Slot>,
    ) -> Option<Running> {
        self.handlers.get(kind).or(self.default.as_ref()).map(|handler| handler(payload, run, slot))
    }

    fn add_typed<T: Task>(&mut self, handler: Erased) {
        self.insert(T::KIND, handler);
        self.queues.push((T::KIND, T::defaults().queue_name().to_owned()));
    }

    fn insert(&mut self, kind: &'static str, handler: Erased) {
        if let Err(error) = Kind::new(kind) {
            self.refuse(error.to_string());
        }
        if self.handlers.insert(kind, handler).is_some() {
            self.refuse(format!("there are two handlers for type {kind}"));
        }
    }

    /// Records a fault; the first one is reported.
    fn refuse(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }
}

fn raw<S, F, R>(handler: F, state: Arc<S>) -> Erased
where
    S: Send + Sync + 'static,
    F: Fn(RawTask, Context<S>) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome<Bytes>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Box::new(move |payload: Bytes, run: RunContext, slot: Arc<Slot>| -> Running {
        let (handler, cx) = (Arc::clone(&handler), run.with_state(Arc::clone(&state)));
        Box::pin(async move {
            let _slot = slot;
            let task = RawTask { kind: cx.kind().clone(), payload };
            match handler(task, cx).await {
                Ok(result) => Ending::Completed { result: Some(result) },
                Err(failure) => failure.into_ending(),
            }
        })
    })
}

fn decode<T: Task>(payload: &[u8]) -> Outcome<T> {
    // Retried, not discarded: a newer worker may know this form of the payload.
    serde_json::from_slice(payload)
        .map_err(|error| Failure::from(format!("the payload is not a {}: {error}", T::KIND)))
}

fn ending<O: serde::Serialize>(outcome: Outcome<O>) -> Ending {
    match outcome {
        Err(failure) => failure.into_ending(),
        Ok(output) => match encode_result(&output) {
            Ok(result) => Ending::Completed { result },
            Err(error) => Failure::from(error).into_ending(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::task::{Configure, Options};

    #[derive(Serialize, Deserialize)]
    struct Plain;

    impl Task for Plain {
        const KIND: &'static str = "plain";
        type Output = ();
    }

    #[derive(Serialize, Deserialize)]
    struct Mail;

    impl Task for Mail {
        const KIND: &'static str = "mail";
        type Output = ();
        fn defaults() -> Options {
            Options::new().queue("mail")
        }
    }

    #[track_caller]
    fn check_unserved(queues: &[&str], kinds: &[&str]) {
        let mut registry = Registry::default();
        registry.add(|_: Plain, _: Context<()>| async { Ok(()) }, Arc::new(()));
        registry.add_blocking(|_: Mail, _: Context<()>| Ok(()), Arc::new(()));
        let queues: Vec<_> = queues.iter().map(|q| (QueueName::new(q).unwrap(), 1)).collect();
        let unserved: Vec<_> = registry.unserved(&queues).map(|(kind, _)| *kind).collect();
        assert_eq!(unserved, kinds);
    }

    #[test]
    fn nothing_is_stored_for_a_result_of_null() {
        assert_eq!(ending(Ok(())), Ending::Completed { result: None });
        assert_eq!(ending(Ok(None::<u8>)), Ending::Completed { result: None });
        assert_eq!(ending(Ok("null")), Ending::Completed { result: Some("\"null\"".into()) });
    }

    #[test]
    fn a_kind_whose_queue_the_worker_does_not_serve_is_told() {
        check_unserved(&["default"], &["mail"]);
        check_unserved(&["mail"], &["plain"]);
        check_unserved(&["mail", "default"], &[]);
    }
}
