//! A task as the API tells it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use windlass_core::task::Progress;
use windlass_core::{
    Claimed, Epoch, Priority, State, Tag, TaskId, TaskRecord, Timestamp, WorkerId,
};

use super::Seconds;
use super::words::{Anything, EpochWord, PriorityWord, ProgressForm, SecondsWord, StateWord, Time};

/// A task in an answer; what is not set is null.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Task<'a> {
    #[schemars(with = "String")]
    id: &'a TaskId,
    /// Which handler runs it.
    r#type: &'a str,
    queue: &'a str,
    #[schemars(with = "PriorityWord")]
    priority: Priority,
    #[schemars(with = "StateWord")]
    state: State,
    /// Null in lists, and where it is not JSON.
    #[schemars(with = "Anything")]
    payload: Option<&'a RawValue>,
    /// A payload that is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// Runs that ended by themselves.
    attempts: u32,
    /// Runs whose worker was lost.
    crashes: u32,
    max_retries: u32,
    max_crashes: u32,
    /// Null in lists, and where it is not JSON.
    #[schemars(with = "Anything")]
    result: Option<&'a RawValue>,
    /// A result that is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    /// The last error of a run, or why the task waits; null in lists but those of dead letters.
    error: Option<&'a str>,
    #[schemars(with = "Option<String>")]
    worker_id: Option<&'a WorkerId>,
    #[schemars(with = "Option<EpochWord>")]
    epoch: Option<Epoch>,
    #[schemars(with = "Option<ProgressForm>")]
    progress: Option<Progress>,
    #[schemars(with = "Time")]
    created_at: Timestamp,
    #[schemars(with = "Time")]
    updated_at: Timestamp,
    #[schemars(with = "Option<Time>")]
    run_at: Option<Timestamp>,
    #[schemars(with = "Option<Time>")]
    claimed_at: Option<Timestamp>,
    /// Known once the run has ended.
    #[schemars(with = "Option<Time>")]
    started_at: Option<Timestamp>,
    /// Set in every final state.
    #[schemars(with = "Option<Time>")]
    completed_at: Option<Timestamp>,
    /// Longest run, in seconds.
    #[schemars(with = "SecondsWord")]
    timeout: Seconds,
    #[schemars(with = "Option<Time>")]
    deadline: Option<Timestamp>,
    idempotency_key: Option<&'a str>,
    #[schemars(with = "Vec<String>")]
    tags: &'a [Tag],
    metadata: &'a BTreeMap<String, String>,
    traceparent: Option<&'a str>,
}

impl<'a> Task<'a> {
    /// A task with everything that is kept of it.
    pub(crate) fn whole(record: &'a TaskRecord) -> Self {
        let (payload, payload_base64) = open(&record.payload);
        let (result, result_base64) = record.result.as_deref().map(open).unwrap_or_default();
        Self { payload, payload_base64, result, result_base64, ..Self::listed(record) }
    }

    /// A task as its worker gets it: what a claim does not tell is null.
    pub(crate) fn leased(task: &'a Claimed, worker: &'a WorkerId) -> Self {
        let (spec, extras) = (&task.spec, &task.spec.extras);
        let (payload, payload_base64) = open(&task.payload);
        Self {
            id: &task.id,
            r#type: task.kind.as_str(),
            queue: task.queue.as_str(),
            priority: task.priority,
            state: State::Running,
            payload,
            payload_base64,
            attempts: task.attempts,
            crashes: task.crashes,
            max_retries: spec.max_retries,
            max_crashes: spec.max_crashes,
            result: None,
            result_base64: None,
            error: None,
            worker_id: Some(worker),
            epoch: Some(task.epoch),
            progress: None,
            created_at: task.created_at,
            updated_at: task.claimed_at,
            run_at: None,
            claimed_at: Some(task.claimed_at),
            started_at: None,
            completed_at: None,
            timeout: Seconds(spec.timeout),
            deadline: extras.deadline,
            idempotency_key: None,
            tags: &extras.tags,
            metadata: &extras.metadata,
            traceparent: extras.traceparent.as_deref(),
        }
    }

    /// A task as it stands in lists: payload and result are null, and so is the error where its history
    /// was not read.
    pub(crate) fn listed(record: &'a TaskRecord) -> Self {
        let (spec, extras) = (&record.spec, &record.spec.extras);
        Self {
            id: &record.id,
            r#type: record.kind.as_str(),
            queue: record.queue.as_str(),
            priority: record.priority,
            state: record.state,
            payload: None,
            payload_base64: None,
            attempts: record.attempts,
            crashes: record.crashes,
            max_retries: spec.max_retries,
            max_crashes: spec.max_crashes,
            result: None,
            result_base64: None,
            error: error(record),
            worker_id: record.worker.as_ref(),
            epoch: record.epoch,
            progress: record.progress(),
            created_at: record.created_at,
            updated_at: record.updated_at,
            run_at: record.run_at,
            claimed_at: record.claimed_at,
            started_at: record.started_at,
            completed_at: record.finished_at,
            timeout: Seconds(spec.timeout),
            deadline: extras.deadline,
            idempotency_key: record.idempotency_key.as_deref(),
            tags: &extras.tags,
            metadata: &extras.metadata,
            traceparent: extras.traceparent.as_deref(),
        }
    }
}

/// Why a task waits that no worker handles, else the last error of a run.
fn error(record: &TaskRecord) -> Option<&str> {
    let reason = record.history.wait_reason().filter(|_| record.state == State::Scheduled);
    reason.or_else(|| record.history.last_error())
}

/// Bytes as JSON when they are, byte for byte, else as base64.
fn open(bytes: &[u8]) -> (Option<&RawValue>, Option<String>) {
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(json) => (Some(json), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}
