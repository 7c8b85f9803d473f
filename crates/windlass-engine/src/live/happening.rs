//! What a store answered, told as events. Pure: who listens is decided elsewhere.

use serde::{Deserialize, Serialize};
use windlass_core::event::{EventDetails, EventKind, EventTask, TEXT_BYTES_MAX};
use windlass_core::history::Happening;
use windlass_core::limits::clip;
use windlass_core::store::{Action, Applied, Changed, Inserted, ProgressReport};
use windlass_core::{
    Claimed, NewTask, QueueName, State, TaskId, TaskRecord, Timestamp, Transition, When, WorkerId,
};

/// An event of a task, as it goes from process to process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskEvent {
    #[serde(rename = "k")]
    pub(crate) kind: EventKind,
    #[serde(rename = "t")]
    pub(crate) at: Timestamp,
    /// Somebody asked for it from outside: such events are ordered by their time, not by their place in the
    /// life cycle.
    #[serde(rename = "a", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_asked_for: bool,
    #[serde(rename = "d")]
    pub(crate) task: EventTask,
}

/// A task on its way into the store: what an event will tell of it.
pub(crate) fn submitting(task: &NewTask) -> EventTask {
    let state = match task.when {
        When::Now => State::Pending,
        When::After(_) | When::At(_) => State::Scheduled,
    };
    EventTask {
        id: task.id.clone(),
        kind: task.kind.clone(),
        queue: task.queue.clone(),
        priority: task.priority,
        epoch: None,
        more: EventDetails { state: Some(state), ..EventDetails::default() },
    }
}

/// Tasks that are new.
pub(crate) fn submitted(
    tasks: Vec<EventTask>,
    told: &[Inserted],
    now: Timestamp,
) -> Vec<TaskEvent> {
    let new = tasks.into_iter().zip(told).filter(|(_, told)| told.is_new());
    new.map(|(mut task, told)| {
        let at = told.created_at().unwrap_or(now);
        task.more.created_at = Some(at);
        plain(EventKind::TaskSubmitted, at, task)
    })
    .collect()
}

/// Tasks that a worker was given.
pub(crate) fn started(worker: &WorkerId, tasks: &[Claimed]) -> Vec<TaskEvent> {
    tasks.iter().map(|task| start(worker, task)).collect()
}

fn start(worker: &WorkerId, task: &Claimed) -> TaskEvent {
    let more = EventDetails {
        worker_id: Some(worker.clone()),
        attempt: Some(task.attempts),
        created_at: Some(task.created_at),
        ..EventDetails::default()
    };
    let told = EventTask {
        id: task.id.clone(),
        kind: task.kind.clone(),
        queue: task.queue.clone(),
        priority: task.priority,
        epoch: Some(task.epoch),
        more,
    };
    plain(EventKind::TaskStarted, task.claimed_at, told)
}

/// The submit of a task that was started before anyone told of it: by another process whose answer is on its
/// way, or in a transaction of an application, which tells nobody.
pub(crate) fn submit_of(start: &TaskEvent) -> Option<TaskEvent> {
    let created_at = start.task.more.created_at?;
    let more = EventDetails { created_at: Some(created_at), ..EventDetails::default() };
    let task = EventTask { epoch: None, more, ..start.task.clone() };
    Some(plain(EventKind::TaskSubmitted, created_at, task))
}

/// Runs whose end was accepted.
pub(crate) fn ended(
    worker: &WorkerId,
    runs: &[Transition],
    outcomes: &[Applied],
    now: Timestamp,
) -> Vec<TaskEvent> {
    let mut events = Vec::with_capacity(runs.len());
    for (run, outcome) in runs.iter().zip(outcomes) {
        if let Applied::Applied(state) = outcome {
            end(worker, run, *state, now, &mut events);
        }
    }
    events
}

fn end(
    worker: &WorkerId,
    run: &Transition,
    state: State,
    now: Timestamp,
    events: &mut Vec<TaskEvent>,
) {
    let error = || {
        let text = run.next.note.as_ref().and_then(|note| note.error.as_deref());
        text.map(|text| clip(text, TEXT_BYTES_MAX).to_owned())
    };
    let known = || EventDetails {
        worker_id: Some(worker.clone()),
        attempt: Some(run.next.attempts),
        duration_ms: run.took.map(millis),
        ..EventDetails::default()
    };
    let mut tell = |kind, more| {
        let task = EventTask {
            id: run.lease.task.clone(),
            kind: run.kind.clone(),
            queue: run.queue.clone(),
            priority: run.priority,
            epoch: Some(run.lease.epoch),
            more,
        };
        events.push(plain(kind, now, task));
    };
    let waits = |state| EventDetails {
        state: Some(state),
        delay_ms: match run.next.when {
            When::After(delay) => Some(millis(delay)),
            When::Now | When::At(_) => None,
        },
        ..known()
    };
    match state {
        State::Completed => tell(EventKind::TaskCompleted, known()),
        State::Cancelled => tell(EventKind::TaskCancelled, known()),
        State::Retrying => {
            let failed = EventDetails { will_retry: Some(true), error: error(), ..known() };
            tell(EventKind::TaskFailed, failed);
            tell(EventKind::TaskRetrying, waits(state));
        }
        State::DeadLetter => {
            let what = run.next.note.as_ref().map(|note| note.what);
            if what != Some(Happening::DeadlinePassed) {
                let failed = EventDetails { will_retry: Some(false), error: error(), ..known() };
                tell(EventKind::TaskFailed, failed);
            }
            tell(EventKind::TaskDeadLetter, EventDetails { error: error(), ..known() });
        }
        // Handled elsewhere. The start was not published either: see `Client::watched_for`.
        State::Pending if run.next.note.is_none() => {}
        // Snoozed, put off or released.
        State::Scheduled | State::Pending => tell(EventKind::TaskRetrying, waits(state)),
        State::Running => {}
    }
}

/// The tasks of which a change has to be told, and the state that it has put them into.
pub(crate) fn changed(ids: &[TaskId], outcomes: &[Changed]) -> Vec<(TaskId, State)> {
    let done = |(id, outcome): (&TaskId, &Changed)| match outcome {
        Changed::Done(Some(state)) => Some((id.clone(), *state)),
        // A run that is called off is told when it ends; what is gone has no event.
        Changed::Done(None)
        | Changed::Requested
        | Changed::Conflict(_)
        | Changed::HeldElsewhere(_)
        | Changed::NotFound => None,
    };
    ids.iter().zip(outcomes).filter_map(done).collect()
}

/// What a change has made of a task; nothing when it has moved on since.
pub(crate) fn change(action: Action, state: State, record: &TaskRecord) -> Option<TaskEvent> {
    if record.state != state {
        return None;
    }
    let kind = match action {
        Action::Cancel => EventKind::TaskCancelled,
        Action::Rerun | Action::Reschedule(_) => EventKind::TaskRetrying,
        Action::Delete => return None,
    };
    let delay_ms = match (action, record.run_at) {
        (Action::Reschedule(_), Some(at)) => Some(millis(at.since(record.updated_at))),
        _ => None,
    };
    let more = EventDetails { state: Some(state), delay_ms, ..EventDetails::default() };
    let event = plain(kind, record.updated_at, of_record(record, more));
    Some(TaskEvent { is_asked_for: true, ..event })
}

/// How far a run has come; nothing when it is not that run any more.
pub(crate) fn progress(
    report: &ProgressReport,
    record: &TaskRecord,
    now: Timestamp,
) -> Option<TaskEvent> {
    if record.state != State::Running || record.epoch != Some(report.lease.epoch) {
        return None;
    }
    let more = EventDetails {
        worker_id: record.worker.clone(),
        progress: Some(windlass_core::task::Progress::part(report.fraction)),
        note: Some(clip(&report.note, TEXT_BYTES_MAX).to_owned()),
        ..EventDetails::default()
    };
    Some(plain(EventKind::TaskProgress, now, of_record(record, more)))
}

fn of_record(record: &TaskRecord, more: EventDetails) -> EventTask {
    EventTask {
        id: record.id.clone(),
        kind: record.kind.clone(),
        queue: QueueName::clone(&record.queue),
        priority: record.priority,
        epoch: record.epoch,
        more,
    }
}

fn plain(kind: EventKind, at: Timestamp, task: EventTask) -> TaskEvent {
    TaskEvent { kind, at, is_asked_for: false, task }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
