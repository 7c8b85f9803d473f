//! Isolation: two and three callers of claim, apply, expire, cancel, rerun and delete at once.
//!
//! Each combination is run concurrently, through two handles. What the callers were told and what
//! became of the task must be what *some* order of the same calls, one after the other, comes to;
//! the memory store plays every order to tell which outcomes there are.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Barrier;
use windlass_core::store::{Applied, Changed, Duty, Refusal};
use windlass_core::{State, TaskId, WorkerId};

use crate::draft::{Draft, draft};
use crate::scene::{HOUR, LEASE, MS, Run, Scene, completed, failed};
use crate::subject::{MemorySubject, Subject};

/// What a caller does to the one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Claim,
    Complete,
    Fail,
    Expire,
    Cancel,
    Rerun,
    Delete,
}

const CALLS: [Call; 7] = [
    Call::Claim,
    Call::Complete,
    Call::Fail,
    Call::Expire,
    Call::Cancel,
    Call::Rerun,
    Call::Delete,
];

/// What a caller was told, without what differs from store to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Claim: whether it was given the task.
    Given(bool),
    /// Complete and fail.
    Applied(Applied),
    /// Expire: whether it took the task back.
    Expired(bool),
    /// Cancel, rerun and delete.
    Changed(Changed),
}

/// What a combination of calls came to.
#[derive(Clone, PartialEq)]
struct Outcome {
    told: Vec<Told>,
    task: Option<Seen>,
}

/// What is left of the task.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    state: State,
    attempts: u32,
    crashes: u32,
    is_cancel_requested: bool,
    /// Runs that have begun, told by how often the epoch has grown.
    is_under_first_lease: bool,
    entries: usize,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "told {:?}, left {:?}", self.told, self.task)
    }
}

/// Where the task stands when the callers start.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// It waits for its first run.
    Pending,
    /// It runs under a worker whose lease has run out, so that an expire may take it.
    Overdue,
    /// The same, with a cancel requested.
    OverdueUnderCancel,
    /// Its run was lost, and it waits for another.
    Crashed,
    /// It has failed and waits for its retry.
    Retrying,
    /// It is dead.
    Dead,
}

/// The task, the lease that apply names, and who else takes part.
#[derive(Clone)]
struct Cast {
    task: TaskId,
    queue: String,
    lease: Run,
    claimer: WorkerId,
    duty: Duty,
}

async fn set_up(s: &Scene, start: Start, round: usize) -> Cast {
    let queue = format!("race-{round}");
    let draft: Draft = draft().queue(&queue).max_crashes(1);
    let lease = match start {
        // A lease of another task: nothing that anyone here may end.
        Start::Pending => {
            let other = s.start(draft.clone().queue("unrelated")).await;
            s.finish(&other, completed()).await;
            other
        }
        _ => s.start(draft.clone()).await,
    };
    let mut task = lease.id.clone();
    match start {
        Start::Pending => task = s.submit(draft).await,
        Start::Overdue => {}
        Start::OverdueUnderCancel => drop(s.cancel(&task).await),
        Start::Crashed => drop(s.lose_all_workers().await),
        Start::Retrying => drop(s.finish(&lease, failed("boom")).await),
        Start::Dead => {
            let ending = crate::scene::discarded("no use");
            s.finish(&lease, ending).await;
        }
    }
    s.advance(LEASE + MS);
    let claimer = s.worker().await;
    Cast { task, queue, lease, claimer, duty: s.duty().await }
}

async fn call(s: &Scene, cast: &Cast, call: Call) -> Told {
    let report = async |ending| {
        let mut transition = s.transition(&cast.lease, ending);
        transition.lease.task = cast.task.clone();
        s.apply(&cast.lease.worker, vec![transition]).await[0]
    };
    match call {
        Call::Claim => {
            let given = s.claim_from(&cast.claimer, &[&cast.queue], 1).await;
            Told::Given(!given.is_empty())
        }
        Call::Complete => Told::Applied(report(completed()).await),
        Call::Fail => Told::Applied(report(failed("boom")).await),
        Call::Expire => {
            let report = s.store.expire(cast.duty).await.unwrap();
            Told::Expired(report.done > 0)
        }
        Call::Cancel => Told::Changed(s.cancel(&cast.task).await),
        Call::Rerun => Told::Changed(s.rerun(&cast.task).await),
        Call::Delete => Told::Changed(s.delete(&cast.task).await),
    }
}

async fn seen(s: &Scene, cast: &Cast) -> Option<Seen> {
    let record = s.find(&cast.task).await?;
    Some(Seen {
        state: record.state,
        attempts: record.attempts,
        crashes: record.crashes,
        is_cancel_requested: record.is_cancel_requested,
        is_under_first_lease: record.epoch == Some(cast.lease.epoch),
        entries: record.history.entries().len(),
    })
}

/// Everything that the calls can come to, one after the other in any order.
async fn serial_outcomes(start: Start, calls: &[Call]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for order in orders(calls.len()) {
        let s = Scene::on(Arc::new(MemorySubject::fresh().await));
        let cast = set_up(&s, start, 0).await;
        let mut told = vec![Told::Given(false); calls.len()];
        for at in order {
            told[at] = call(&s, &cast, calls[at]).await;
        }
        let task = seen(&s, &cast).await;
        outcomes.push(Outcome { told, task });
    }
    outcomes
}

/// Every order of the first `count` numbers.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = all.iter().flat_map(|order: &Vec<usize>| {
            let rest = (0..count).filter(|at| !order.contains(at));
            rest.map(|at| [&order[..], &[at]].concat())
        });
        all = longer.collect();
    }
    all
}

/// Runs the calls at once, each in a task of its own, and compares with every serial order.
async fn check(s: &Scene, elsewhere: &Scene, start: Start, calls: &[Call], round: usize) {
    let cast = set_up(s, start, round).await;
    let barrier = Arc::new(Barrier::new(calls.len()));
    let mut calling = Vec::new();
    for (number, what) in calls.iter().copied().enumerate() {
        let scene = if number % 2 == 0 { s } else { elsewhere }.clone();
        let (cast, barrier) = (cast.clone(), barrier.clone());
        calling.push(tokio::spawn(async move {
            barrier.wait().await;
            call(&scene, &cast, what).await
        }));
    }
    let mut told = Vec::new();
    for called in calling {
        told.push(called.await.unwrap());
    }
    let task = seen(s, &cast).await;
    let outcome = Outcome { told, task };
    let allowed = serial_outcomes(start, calls).await;
    assert!(
        allowed.contains(&outcome),
        "{calls:?} at once on a task that is {start:?}: {outcome:?}\n\
         is not what any order of them comes to: {allowed:#?}"
    );
    // Nothing of this round may be taken for the next one's.
    s.leave(&cast.claimer).await;
    s.leave(&cast.lease.worker).await;
    s.delete(&cast.task).await;
}

async fn check_pairs(s: Scene, start: Start) {
    let elsewhere = s.elsewhere().await;
    let mut round = 0;
    for (at, first) in CALLS.into_iter().enumerate() {
        for second in &CALLS[at..] {
            for calls in [[first, *second], [*second, first]] {
                check(&s, &elsewhere, start, &calls, round).await;
                round += 1;
            }
        }
    }
    s.books_balance("after all pairs").await;
}

async fn check_triples(s: Scene, start: Start) {
    let elsewhere = s.elsewhere().await;
    let mut round = 0;
    for (at, first) in CALLS.into_iter().enumerate() {
        for (then, second) in CALLS.into_iter().enumerate().skip(at) {
            for third in &CALLS[then..] {
                let calls = [first, second, *third];
                check(&s, &elsewhere, start, &calls, round).await;
                round += 1;
            }
        }
    }
    s.books_balance("after all triples").await;
}

pub async fn any_two_calls_at_once_on_a_pending_task_are_as_in_some_order(s: Scene) {
    check_pairs(s, Start::Pending).await;
}

pub async fn any_two_calls_at_once_on_an_overdue_run_are_as_in_some_order(s: Scene) {
    check_pairs(s, Start::Overdue).await;
}

pub async fn any_two_calls_at_once_on_an_overdue_run_under_a_cancel_are_as_in_some_order(s: Scene) {
    check_pairs(s, Start::OverdueUnderCancel).await;
}

pub async fn any_two_calls_at_once_on_a_crashed_task_are_as_in_some_order(s: Scene) {
    check_pairs(s, Start::Crashed).await;
}

pub async fn any_two_calls_at_once_on_a_retrying_task_are_as_in_some_order(s: Scene) {
    check_pairs(s, Start::Retrying).await;
}

pub async fn any_two_calls_at_once_on_a_dead_task_are_as_in_some_order(s: Scene) {
    check_pairs(s, Start::Dead).await;
}

pub async fn any_three_calls_at_once_on_a_pending_task_are_as_in_some_order(s: Scene) {
    check_triples(s, Start::Pending).await;
}

pub async fn any_three_calls_at_once_on_an_overdue_run_are_as_in_some_order(s: Scene) {
    check_triples(s, Start::Overdue).await;
}

pub async fn any_three_calls_at_once_on_a_crashed_task_are_as_in_some_order(s: Scene) {
    check_triples(s, Start::Crashed).await;
}

pub async fn any_three_calls_at_once_on_a_retrying_task_are_as_in_some_order(s: Scene) {
    check_triples(s, Start::Retrying).await;
}

/// Claims, reports and upkeep in a wild mix: each lease ends at most once, and no run is lost.
pub async fn at_most_one_completion_of_each_lease_counts_in_a_wild_mix(s: Scene) {
    let ids = s.submit_all(vec![draft().max_crashes(99).max_retries(99); 12]).await;
    let elsewhere = s.elsewhere().await;
    let mut playing = Vec::new();
    for number in 0..4_u64 {
        let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
        let ids = ids.clone();
        playing.push(tokio::spawn(async move { play(&scene, &ids, number).await }));
    }
    let mut completions = Vec::new();
    for played in playing {
        completions.extend(played.await.unwrap());
    }
    for id in &ids {
        let count = completions.iter().filter(|done| *done == id).count();
        let record = s.record(id).await;
        let reruns = record
            .history
            .entries()
            .iter()
            .filter(|entry| entry.what == windlass_core::history::Happening::Rerun)
            .count();
        let is_completed = record.state == State::Completed;
        assert!(
            count <= reruns + 1,
            "{count} completions were accepted with {reruns} reruns: {record:#?}"
        );
        assert!(!is_completed || count > 0, "completed by nobody: {record:#?}");
    }
    s.advance(HOUR);
}

/// One player: claims, completes twice, reruns, cancels, lets leases run out.
async fn play(s: &Scene, ids: &[TaskId], seed: u64) -> Vec<TaskId> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut worker = s.worker().await;
    let mut completions = Vec::new();
    for _ in 0..25 {
        if s.store.beat(s.sign(&worker)).await.is_err() {
            worker = s.worker().await;
        }
        let claim = s.store.claim(crate::scene::claim_of(&worker, 2)).await;
        for task in claim.map_or_else(|_| Vec::new(), |claim| claim.tasks) {
            let transition = s.transition(&task, completed());
            for _ in 0..2 {
                match s.apply(&worker, vec![transition.clone()]).await[0] {
                    Applied::Applied(State::Completed) => completions.push(task.id.clone()),
                    Applied::Applied(state) => panic!("a success became {state}"),
                    Applied::Already | Applied::Refused(Refusal::LeaseLost) => {}
                    Applied::Refused(Refusal::Gone) => panic!("nobody deletes here"),
                    Applied::Unrecorded => panic!("nothing is damaged here"),
                }
            }
        }
        let id = &ids[dice.usize(..ids.len())];
        match dice.u8(..4) {
            0 => drop(s.rerun(id).await),
            1 => drop(s.cancel(id).await),
            2 => s.advance(LEASE / 3),
            _ => {
                let duty = s.duty().await;
                // Another player may have taken the lead of a later term since.
                drop(s.store.expire(duty).await);
            }
        }
    }
    completions
}
