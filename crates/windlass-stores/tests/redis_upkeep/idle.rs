//! Idle queues: what they cost does not grow with their number.

use std::time::Duration;

use windlass_core::store::{ClaimParams, Duty, Quota};
use windlass_core::{QueueName, State, WorkerId};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{Run, SECOND, completed, failed};

use crate::stage::{Layout, Stage};

fn name(number: usize) -> String {
    format!("idle-{number:04}")
}

/// Queues that were used once, and since when nothing has happened.
async fn make_idle(stage: &Stage, count: usize) {
    let scene = &stage.scene;
    let drafts = (0..count).map(|number| draft().queue(&name(number)).retention(SECOND));
    scene.submit_all(drafts).await;
    let worker = scene.worker().await;
    let quotas = (0..count).map(|n| Quota::of(QueueName::stored(&name(n)), 1)).collect();
    let params = ClaimParams { worker: worker.clone(), quotas, limit: count, suspects_at_most: 1 };
    let tasks = scene.claim_by(params).await;
    assert_eq!(tasks.len(), count);
    let ends = tasks.iter().map(|task| scene.transition(task, completed())).collect();
    scene.apply(&worker, ends).await;
    scene.advance(SECOND * 2);
}

/// All upkeep as a leader does it in some seconds, and the beats of a worker.
async fn look_after(stage: &Stage, duty: Duty, worker: &WorkerId) {
    for _ in 0..20 {
        stage.scene.store.promote(duty).await.unwrap();
    }
    for _ in 0..2 {
        while stage.scene.store.prune(duty).await.unwrap().has_more {}
        while stage.scene.store.tend(duty).await.unwrap().has_more {}
        stage.scene.beat(worker).await;
    }
    stage.scene.store.expire(duty).await.unwrap();
}

/// How many commands the server does for that, those of scripts among them, once the queues are known to be idle.
async fn commands_when_idle(stage: &Stage, duty: Duty, worker: &WorkerId) -> u64 {
    let (mut least, mut repeats) = (u64::MAX, 0);
    while repeats < REPEATS {
        stage.reset_counts().await;
        look_after(stage, duty, worker).await;
        let commands = stage.commands().await;
        repeats = if commands < least / 10 * 9 { 0 } else { repeats + 1 };
        least = least.min(commands);
        // A writer may rely on its announcement for two seconds of real time.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(least < COMMANDS_MAX, "upkeep of idle queues takes {least} commands");
    least
}

/// More than the turns of idle queues take, and far less than a look at all of them.
const COMMANDS_MAX: u64 = 40_000;
/// How often the count must stay as it is: for longer than an announcement lasts.
const REPEATS: usize = 6;

#[tokio::test]
async fn idle_queues_cost_upkeep_nothing_by_their_number() {
    let mut costs = Vec::new();
    for count in [320, 1_600] {
        let stage = Stage::new(Layout::Streams).await;
        make_idle(&stage, count).await;
        let (scene, duty) = (&stage.scene, stage.scene.duty().await);
        let run = scene.start(draft()).await;
        costs.push(commands_when_idle(&stage, duty, &run.worker).await);
        let queues = scene.store.queues().await.unwrap();
        assert_eq!(queues.len(), count + 1);
        assert!(queues.iter().all(|queue| queue.counts.get(State::Completed) == 0), "pruned");
        // A beat asks no idle queue, and hears of a request all the same.
        scene.elsewhere().await.cancel(&run.id).await;
        for _ in 0..3 {
            let cancels = scene.beat(&run.worker).await.cancels;
            assert_eq!(cancels.len(), 1, "until the run has ended");
        }
    }
    // Five times as many queues would cost five times as much if each were visited.
    assert!(costs[1] < costs[0] * 2, "commands of 320 and of 1,600 queues: {costs:?}");
}

#[tokio::test]
async fn a_queue_that_was_idle_is_looked_after_at_once() {
    let stage = Stage::new(Layout::Streams).await;
    make_idle(&stage, 300).await;
    let (scene, duty) = (&stage.scene, stage.scene.duty().await);
    let worker = scene.worker().await;
    look_after(&stage, duty, &worker).await;
    // Another process writes in queues far apart: each has something due within seconds.
    let other = scene.elsewhere().await;
    for number in [0, 150, 299] {
        let later = other.submit(draft().queue(&name(number)).after(SECOND)).await;
        scene.advance(SECOND);
        scene.store.promote(duty).await.unwrap();
        scene.expect(&later, State::Pending, "its time has come").await;
        let worker = other.worker().await;
        let quotas = vec![Quota::of(QueueName::stored(&name(number)), 1)];
        let params = ClaimParams { worker: worker.clone(), quotas, limit: 1, suspects_at_most: 1 };
        let task = other.claim_by(params).await.remove(0);
        let run = Run { worker, task };
        other.finish_as(&run, failed("once more"), State::Retrying).await;
        scene.advance(SECOND * 3_600);
        scene.store.promote(duty).await.unwrap();
        scene.expect(&later, State::Pending, "its next attempt is due").await;
    }
}

#[tokio::test]
async fn reading_idle_queues_takes_few_commands_and_round_trips() {
    let stage = Stage::new(Layout::Streams).await;
    make_idle(&stage, 500).await;
    stage.reset_counts().await;
    assert_eq!(stage.scene.store.queues().await.unwrap().len(), 500);
    stage.scene.store.workers().await.unwrap();
    let (commands, calls) = (stage.commands().await, stage.count_of("evalsha").await);
    assert!(calls <= 22, "{calls} calls of scripts");
    assert!(commands <= 5 * 500, "{commands} commands for 500 queues");
}
