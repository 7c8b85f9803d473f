//! Who plays: producers, workers, an operator and a leader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Action, Applied, ApplyParams, Beat, Bid, ChangeParams, Changed, ClaimParams, Duty, Inserted,
    Leadership, Quota, Reservation, Target, WaitParams, WakeMark, WorkerCard,
};
use windlass_core::{Claimed, Ending, Priority, State, Store, WorkerId};

use super::{Known, Model};
use crate::draft::{draft, queue, until_finished};

const LEASE: Duration = Duration::from_secs(1);
const QUEUES: [&str; 3] = ["a", "b", "c"];
const BACKOFF: Backoff = Backoff::Fixed { initial: Duration::from_millis(20), jitter: 0.5 };

pub(super) async fn produce(store: Arc<dyn Store>, model: Arc<Model>, number: u64, count: usize) {
    let mut dice = model.dice(number);
    let has_priorities = store.profile().capabilities.has_priorities;
    let mut made = 0;
    while made < count {
        let size = if dice.u8(..4) == 0 { dice.usize(1..4) } else { dice.usize(1..120) };
        let is_keyed = dice.u8(..4) == 0;
        let names: Vec<_> = (0..size).map(|_| QUEUES[dice.usize(..3)]).collect();
        let wanted = names.iter().map(|name| Reservation { queue: queue(name), count: 1 });
        let ids = store.reserve(wanted.collect()).await.unwrap();
        let mut tasks = Vec::new();
        for (name, id) in names.into_iter().zip(ids) {
            let priority = Priority::DESCENDING[dice.usize(..4)];
            let mut one = draft().queue(name).max_retries(3);
            if has_priorities {
                one = one.priority(priority);
            }
            if dice.u8(..20) == 0 {
                one = one.after(Duration::from_millis(dice.u64(1..100)));
            }
            if is_keyed && dice.bool() {
                one = one.unique(until_finished(&format!("key-{}", dice.u16(..2_000))));
            }
            let is_brief = dice.u8(..10) != 0;
            if is_brief {
                one = one.retention(Duration::from_millis(dice.u64(1..300)));
            }
            // Known before it is stored: a worker may be faster than the answer.
            let known = Known { ends_left: 1, is_brief, ..Known::default() };
            model.tasks.lock().insert(id.clone(), known);
            tasks.push(one.with_id(id));
        }
        let answers = store.insert(tasks.clone()).await.unwrap();
        for (task, answer) in tasks.iter().zip(answers) {
            match answer {
                Inserted::New { .. } => {}
                Inserted::Conflict { .. } => {
                    model.tasks.lock().remove(&task.id);
                }
                other => panic!("an insert was answered {other:?}"),
            }
        }
        made += size;
    }
}

pub(super) async fn work(store: Arc<dyn Store>, model: Arc<Model>, number: u64) {
    let mut dice = model.dice(100 + number);
    let mut worker = new_worker(&model);
    let (mut held, mut ghosts): (Vec<Claimed>, Vec<Claimed>) = (Vec::new(), Vec::new());
    loop {
        let is_over = model.is_over.load(Ordering::SeqCst);
        // The store counts in whole ms.
        let until = Instant::now() + LEASE - Duration::from_millis(2);
        model.heartbeats.fetch_add(1, Ordering::SeqCst);
        if store.beat(beat(&worker)).await.is_err() {
            // Too slow for its lease: all that it held is given away.
            model.late_heartbeats.fetch_add(1, Ordering::SeqCst);
            model.let_go(&held);
            held.clear();
            worker = new_worker(&model);
            continue;
        }
        model.renewed(&held, until);
        if !is_over && held.len() < 200 {
            let since = Instant::now();
            let params = ClaimParams {
                worker: worker.clone(),
                quotas: QUEUES.iter().map(|name| Quota::of(queue(name), 80)).collect(),
                limit: dice.usize(1..150),
                suspects_at_most: 5,
            };
            // One that was too slow for its lease is told so by its next beat.
            if let Ok(claim) = store.claim(params).await {
                model.claimed(&claim.tasks, since, until);
                if claim.tasks.is_empty() && held.is_empty() {
                    wait(&store, claim.mark).await;
                }
                held.extend(claim.tasks);
            }
        }
        if dice.u8(..40) == 0 && !is_over {
            // A crash: everything is abandoned; some of it is reported all the same, later.
            model.let_go(&held);
            ghosts.append(&mut held);
            worker = new_worker(&model);
            continue;
        }
        if !ghosts.is_empty() && dice.u8(..6) == 0 {
            let late = ghosts.split_off(ghosts.len() - ghosts.len().min(30));
            report(&store, &model, &worker, &late, &mut dice).await;
        }
        if is_over && held.is_empty() {
            return;
        }
        let count = if is_over { held.len() } else { dice.usize(0..=held.len()) };
        dice.shuffle(&mut held);
        let ended = held.split_off(held.len() - count);
        model.let_go(&ended);
        report(&store, &model, &worker, &ended, &mut dice).await;
        if dice.u8(..10) == 0 {
            report(&store, &model, &worker, &ended, &mut dice).await;
        }
    }
}

/// Reports endings of all sorts; notes those that the store accepted as ends of their tasks.
async fn report(
    store: &Arc<dyn Store>,
    model: &Model,
    worker: &WorkerId,
    tasks: &[Claimed],
    dice: &mut fastrand::Rng,
) {
    let endings = tasks.iter().map(|task| {
        let ending = match dice.u8(..100) {
            0..80 => Ending::Completed { result: dice.bool().then(|| "done".into()) },
            80..90 => Ending::Failed { error: "boom".into(), retry_after: None },
            90..93 => Ending::Discarded { error: "no use".into() },
            93..96 => Ending::Snoozed { delay: Duration::from_millis(dice.u64(1..50)) },
            _ => Ending::Released,
        };
        finish(task, ending, &BACKOFF, &mut Dice::seeded(dice.u64(..)))
    });
    let params =
        ApplyParams { worker: worker.clone(), transitions: endings.collect(), then_claim: None };
    let outcomes = store.apply(params).await.unwrap().outcomes;
    for (task, outcome) in tasks.iter().zip(outcomes) {
        if let Applied::Applied(state) = outcome
            && state.is_terminal()
        {
            model.ended(&task.id, state);
        }
    }
}

/// Cancels, reruns and deletes tasks by chance.
pub(super) async fn operate(store: Arc<dyn Store>, model: Arc<Model>) {
    let mut dice = model.dice(200);
    while !model.is_over.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let Some(id) = dice.choice(model.tasks.lock().keys().cloned().collect::<Vec<_>>()) else {
            continue;
        };
        let action = match dice.u8(..4) {
            0 | 1 => Action::Cancel,
            2 => Action::Rerun,
            _ => Action::Delete,
        };
        // Known before it is done: a worker may be faster than the answer.
        let was_deleted = model.change(&id, |known| {
            known.ends_left += u32::from(action == Action::Rerun);
            known.is_rerun |= action == Action::Rerun;
            let was_deleted = known.is_deleted;
            known.is_deleted |= action == Action::Delete;
            was_deleted
        });
        let params = ChangeParams {
            target: Target::Tasks(vec![id.clone()]),
            action,
            // A rerun of what waits for a retry ends nothing, and a delete would hide lost tasks.
            only_in: match action {
                Action::Cancel | Action::Reschedule(_) => Vec::new(),
                Action::Rerun => vec![State::Completed, State::Cancelled, State::DeadLetter],
                Action::Delete => vec![State::Completed, State::DeadLetter],
            },
            by: None,
        };
        match store.change(params).await.unwrap().outcomes[0] {
            Changed::Done(Some(State::Cancelled)) => model.ended(&id, State::Cancelled),
            Changed::Done(_) => {}
            Changed::Requested => {
                model.change(&id, |known| known.is_cancel_requested = true);
            }
            Changed::Conflict(_) | Changed::HeldElsewhere(_) | Changed::NotFound => {
                model.change(&id, |known| {
                    known.is_deleted = was_deleted.unwrap_or(true);
                    let is_refused = u32::from(action == Action::Rerun);
                    known.ends_left = known.ends_left.saturating_sub(is_refused);
                });
            }
        }
    }
}

pub(super) async fn keep_up(store: Arc<dyn Store>, model: Arc<Model>) {
    let bid = Bid::Seek { holder: WorkerId::new("leader"), term_length: LEASE * 600 };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else {
        panic!("nobody else leads");
    };
    let duty = Duty { term, limit: 1_000 };
    while !model.is_over.load(Ordering::SeqCst) {
        store.promote(duty).await.unwrap();
        store.expire(duty).await.unwrap();
        model.pruned.fetch_add(store.prune(duty).await.unwrap().done, Ordering::SeqCst);
        let repaired = store.tend(duty).await.unwrap().repaired;
        if repaired > 0 {
            model.violation(format!("{repaired} repairs though nobody broke anything"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn new_worker(model: &Model) -> WorkerId {
    WorkerId::new(format!("worker-{}", model.workers.fetch_add(1, Ordering::SeqCst)))
}

fn beat(worker: &WorkerId) -> Beat {
    Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: LEASE,
        held: None,
        progress: Vec::new(),
    }
}

/// Waits for work, for a while: others may be waiting for this one's beat.
async fn wait(store: &Arc<dyn Store>, mark: WakeMark) {
    let params = WaitParams {
        queues: QUEUES.map(queue).to_vec(),
        since: Some(mark),
        at_most: LEASE / 10,
        ..WaitParams::default()
    };
    store.wait(params).await.unwrap();
}
