//! What a worker sends to a server and reads from it: the bodies of the pull protocol, and what they are in the words
//! of the store contract.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use windlass::core::Epoch;
use windlass::core::duration;
use windlass::core::history::Happening;
use windlass::core::limits::clip;
use windlass::core::store::{Applied, ProgressReport, Refusal, RunOrder};
use windlass::core::task::Extras;
use windlass::core::{
    Error, ErrorKind, Kind, QueueName, Result, Spec, Tag, Transition, When, WorkerId,
};
use windlass::{Claimed, Priority, State, TaskId, Timestamp};

/// Longest note of a progress report.
const NOTE_BYTES_MAX: usize = 128;

/// The body of a lease.
#[derive(Debug, Serialize)]
pub(super) struct LeaseRequest<'a> {
    pub(super) worker: WorkerPart<'a>,
    /// Names, or names with weights.
    pub(super) queues: Value,
    pub(super) strict: bool,
    pub(super) suspects: bool,
    pub(super) max: usize,
    /// In seconds.
    pub(super) wait: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkerPart<'a> {
    pub(super) id: &'a WorkerId,
    pub(super) name: &'a str,
    pub(super) version: &'static str,
    pub(super) slots: u32,
}

/// What a server says to a worker beside tasks.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Control {
    pub(super) state: RunOrder,
    /// In seconds.
    pub(super) heartbeat: f64,
    /// In seconds.
    pub(super) lease: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct LeaseReply {
    pub(super) tasks: Vec<LeasedTask>,
    pub(super) control: Control,
}

/// A task as it is leased. What the server does not tell is of no use to a worker.
#[derive(Debug, Deserialize)]
pub(super) struct LeasedTask {
    id: TaskId,
    r#type: Kind,
    queue: QueueName,
    priority: Priority,
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    attempts: u32,
    crashes: u32,
    max_retries: u32,
    max_crashes: u32,
    epoch: Epoch,
    created_at: Timestamp,
    claimed_at: Timestamp,
    /// In seconds.
    timeout: f64,
    deadline: Option<Timestamp>,
    #[serde(default)]
    tags: Vec<Tag>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    traceparent: Option<String>,
}

impl LeasedTask {
    pub(super) fn into_claimed(self) -> Result<Claimed> {
        let payload = match (self.payload_base64, self.payload) {
            (Some(text), _) => STANDARD.decode(text).map_err(|cause| {
                let text = format!("read the payload of task {}", self.id);
                Error::new(ErrorKind::Unavailable, text).because(cause)
            })?,
            (None, Some(json)) => json.get().as_bytes().to_vec(),
            (None, None) => b"null".to_vec(),
        };
        let extras = Extras {
            deadline: self.deadline,
            tags: self.tags,
            metadata: self.metadata,
            traceparent: self.traceparent,
            ..Extras::default()
        };
        let spec = Spec {
            max_retries: self.max_retries,
            max_crashes: self.max_crashes,
            timeout: duration::from_seconds(self.timeout)?,
            // The server judges how runs end.
            retention: std::time::Duration::ZERO,
            extras,
        };
        Ok(Claimed {
            id: self.id,
            epoch: self.epoch,
            kind: self.r#type,
            queue: self.queue,
            priority: self.priority,
            payload: payload.into(),
            attempts: self.attempts,
            crashes: self.crashes,
            spec,
            // Told by the next heartbeat.
            is_cancel_requested: false,
            created_at: self.created_at,
            pending_at: self.claimed_at,
            claimed_at: self.claimed_at,
        })
    }
}

/// The body of a report.
#[derive(Debug, Serialize)]
pub(super) struct ResultsRequest<'a> {
    pub(super) worker_id: &'a WorkerId,
    pub(super) results: Vec<RunResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<LeaseRequest<'a>>,
}

/// How one run ended.
#[derive(Debug, Serialize)]
pub(super) struct RunResult<'a> {
    id: &'a TaskId,
    epoch: Epoch,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<f64>,
}

impl<'a> RunResult<'a> {
    /// The ending behind a transition. The server decides again what becomes of the task: it knows the task's own
    /// backoff and settings.
    pub(super) fn of(transition: &'a Transition) -> Self {
        let step = &transition.next;
        let error = step.note.as_ref().and_then(|note| note.error.as_deref());
        let plain = |outcome| Self {
            id: &transition.lease.task,
            epoch: transition.lease.epoch,
            outcome,
            result_base64: None,
            error: None,
            after: None,
        };
        match step.note.as_ref().map(|note| note.what) {
            None => Self {
                // In base64, so that the result is kept byte for byte.
                result_base64: step.result.as_ref().map(|result| STANDARD.encode(result)),
                ..plain("completed")
            },
            Some(Happening::Failed) => Self { error, ..plain("failed") },
            Some(Happening::Discarded) => Self { error, ..plain("discarded") },
            // Of both the server decides which came first.
            Some(Happening::TimedOut | Happening::DeadlinePassed) => plain("timed_out"),
            Some(Happening::Snoozed | Happening::PutOff) => {
                let after = match step.when {
                    When::After(delay) => delay.as_secs_f64(),
                    When::Now | When::At(_) => 0.0,
                };
                Self { after: Some(after), ..plain("snoozed") }
            }
            Some(Happening::Cancelled) => plain("cancelled"),
            Some(_) => plain("released"),
        }
    }
}

/// The answer to a report; the last three come where tasks were asked for.
#[derive(Debug, Deserialize)]
pub(super) struct ResultsReply {
    pub(super) results: Vec<ResultStatus>,
    #[serde(default)]
    pub(super) tasks: Option<Vec<LeasedTask>>,
    #[serde(default)]
    pub(super) control: Option<Control>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ResultStatus {
    id: TaskId,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Applied,
    Already,
    LeaseLost,
    Unrecorded,
}

impl ResultStatus {
    /// True for the answer to the report of this task.
    pub(super) fn is_of(&self, task: &TaskId) -> bool {
        self.id == *task
    }

    /// What became of a report that would bring its task into this state.
    pub(super) fn applied(&self, state: State) -> Applied {
        match self.status {
            Status::Applied => Applied::Applied(state),
            Status::Already => Applied::Already,
            Status::LeaseLost => Applied::Refused(Refusal::LeaseLost),
            Status::Unrecorded => Applied::Unrecorded,
        }
    }
}

/// The body of a heartbeat.
#[derive(Debug, Serialize)]
pub(super) struct HeartbeatRequest {
    pub(super) held: Vec<HeldRun>,
}

#[derive(Debug, Serialize)]
pub(super) struct HeldRun {
    pub(super) id: TaskId,
    pub(super) epoch: Epoch,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<ProgressPart>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProgressPart {
    fraction: f64,
    note: String,
}

impl ProgressPart {
    pub(super) fn of(report: &ProgressReport) -> Self {
        let note = clip(&report.note, NOTE_BYTES_MAX).to_owned();
        Self { fraction: report.fraction.clamp(0.0, 1.0), note }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct HeartbeatReply {
    pub(super) control: Control,
    pub(super) cancel: Vec<TaskId>,
    pub(super) lost: Vec<TaskId>,
}

/// The answer to a worker that ends.
#[derive(Debug, Deserialize)]
pub(super) struct LeaveReply {
    pub(super) released: u64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use windlass::core::dice::Dice;
    use windlass::core::state::finish;
    use windlass::{Backoff, Ending};

    use super::*;

    fn leased(more: &Value) -> Claimed {
        let mut task = json!({
            "id": "t1", "type": "mail", "queue": "q", "priority": "high", "state": "running",
            "payload": null, "attempts": 2, "crashes": 1, "max_retries": 3, "max_crashes": 4,
            "epoch": "340282366920938463463374607431768211455", "timeout": 1.5, "deadline": null,
            "created_at": "2032-01-01T00:00:00.000Z", "claimed_at": "2032-01-01T00:00:01.000Z",
            "tags": ["a"], "metadata": {"k": "v"}, "traceparent": null, "later": 1,
        });
        let fields = more.as_object().unwrap().clone();
        task.as_object_mut().unwrap().extend(fields);
        serde_json::from_str::<LeasedTask>(&task.to_string()).unwrap().into_claimed().unwrap()
    }

    #[test]
    fn a_leased_task_is_read_as_it_was_claimed() {
        let task = leased(&json!({}));
        assert_eq!((task.epoch, task.attempts, task.crashes), (Epoch(u128::MAX), 2, 1));
        assert_eq!(
            (task.priority, task.spec.timeout),
            (Priority::High, Duration::from_millis(1_500))
        );
        assert_eq!(task.spec.extras.metadata["k"], "v");
    }

    #[test]
    fn a_payload_keeps_its_bytes() {
        let payload = |more: &Value| leased(more).payload;
        assert_eq!(payload(&json!({"payload": null})), "null");
        assert_eq!(payload(&json!({"payload_base64": ""})), "");
        assert_eq!(payload(&json!({"payload_base64": "/wA="})), &b"\xff\0"[..]);
        let text = r#"{"results":[],"tasks":null,"control":null}"#;
        assert!(serde_json::from_str::<ResultsReply>(text).unwrap().tasks.is_none());
        let raw = serde_json::from_str::<Box<RawValue>>(r#"{ "n":1.50}"#).unwrap();
        let task = LeasedTask { payload: Some(raw), ..task() };
        assert_eq!(task.into_claimed().unwrap().payload, r#"{ "n":1.50}"#);
    }

    fn task() -> LeasedTask {
        LeasedTask {
            id: TaskId::new("t1"),
            r#type: Kind::new("k").unwrap(),
            queue: QueueName::new("q").unwrap(),
            priority: Priority::Normal,
            payload: None,
            payload_base64: None,
            attempts: 1,
            crashes: 0,
            max_retries: 3,
            max_crashes: 3,
            epoch: Epoch(1),
            created_at: Timestamp::default(),
            claimed_at: Timestamp::default(),
            timeout: 1.0,
            deadline: None,
            tags: Vec::new(),
            metadata: BTreeMap::new(),
            traceparent: None,
        }
    }

    #[track_caller]
    fn check(ending: Ending, expected: &Value) {
        let task = task().into_claimed().unwrap();
        let transition = finish(&task, ending, &Backoff::default(), &mut Dice::seeded(1));
        let mut result = serde_json::to_value(RunResult::of(&transition)).unwrap();
        let fields = result.as_object_mut().unwrap();
        assert_eq!(
            (fields.remove("id"), fields.remove("epoch")),
            (Some("t1".into()), Some("1".into()))
        );
        assert_eq!(result, *expected);
    }

    #[test]
    fn each_ending_is_reported_in_the_words_of_the_protocol() {
        let delay = Duration::from_millis(2_500);
        let (error, retry_after) = (String::from("why"), None);
        check(
            Ending::Completed { result: Some("\"x\"".into()) },
            &json!({"outcome": "completed", "result_base64": "Ingi"}),
        );
        check(Ending::Completed { result: None }, &json!({"outcome": "completed"}));
        check(
            Ending::Failed { error: error.clone(), retry_after },
            &json!({"outcome": "failed", "error": "why"}),
        );
        check(Ending::Discarded { error }, &json!({"outcome": "discarded", "error": "why"}));
        check(Ending::Snoozed { delay }, &json!({"outcome": "snoozed", "after": 2.5}));
        check(Ending::TimedOut, &json!({"outcome": "timed_out"}));
        check(Ending::DeadlinePassed { has_started: true }, &json!({"outcome": "timed_out"}));
        check(Ending::Released, &json!({"outcome": "released"}));
        check(Ending::Cancelled, &json!({"outcome": "cancelled"}));
    }
}
