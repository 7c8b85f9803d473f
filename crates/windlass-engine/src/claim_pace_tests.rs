//! Tests of `claim_pace.rs`: single rules, and two workers on one queue, simulated.

use windlass_core::store::PrioritySet;
use windlass_core::{Epoch, Kind, Priority, Spec, TaskId, Timestamp};

use super::*;

const MS: Duration = Duration::from_millis(1);

fn queues(names: &[&str]) -> Queues {
    let weighted = names.iter().map(|name| (QueueName::stored(name), 1)).collect();
    Queues { weighted, is_strict: false, priorities: PrioritySet::ALL }
}

/// Tasks of the queue `q`, one for each letter, which is its kind.
fn tasks(kinds: &str) -> Vec<Claimed> {
    let task = |kind: char| Claimed {
        id: TaskId::new("task"),
        epoch: Epoch(1),
        kind: Kind::stored(&kind.to_string()),
        queue: QueueName::stored("q"),
        priority: Priority::Normal,
        payload: Default::default(),
        attempts: 1,
        crashes: 0,
        spec: Spec {
            max_retries: 3,
            max_crashes: 3,
            timeout: Duration::from_secs(1),
            retention: Duration::from_secs(1),
            extras: Default::default(),
        },
        is_cancel_requested: false,
        created_at: Timestamp::default(),
        pending_at: Timestamp::default(),
        claimed_at: Timestamp::default(),
    };
    kinds.chars().map(task).collect()
}

struct Worker {
    paces: ClaimPaces,
    dice: Dice,
    now: Instant,
}

impl Worker {
    fn new() -> Self {
        Self { paces: ClaimPaces::default(), dice: Dice::seeded(1), now: Instant::now() }
    }

    /// A claim of a worker that handles the kind `a`; answers how many of its tasks are its own.
    fn claims(&mut self, kinds: &str) -> usize {
        let handles = |task: &Claimed| task.kind.as_str() == "a";
        let (own, _) = self.paces.part(tasks(kinds), handles, self.now, &mut self.dice);
        own.len()
    }

    /// From which queues it may claim, and how many tasks.
    fn turn(&mut self, names: &[&str]) -> (Vec<String>, usize) {
        let served = queues(names);
        let turn = self.paces.turn(Cow::Borrowed(&served), 10, self.now);
        (turn.queues.weighted.iter().map(|(queue, _)| queue.to_string()).collect(), turn.limit)
    }

    /// How long the queue stays closed.
    fn pause(&self) -> Duration {
        self.paces.0[&QueueName::stored("q")].opens_at - self.now
    }
}

#[test]
fn a_worker_that_meets_no_foreign_task_claims_as_ever() {
    let mut worker = Worker::new();
    assert_eq!(worker.claims("aaa"), 3);
    assert!(worker.paces.0.is_empty() && worker.paces.next_opening().is_none());
    assert_eq!(worker.turn(&["p", "q"]), (vec!["p".into(), "q".into()], 10));
}

#[test]
fn a_queue_with_foreign_tasks_is_closed_for_a_while_and_others_are_not() {
    let mut worker = Worker::new();
    assert_eq!(worker.claims("abb"), 1);
    assert!((7 * MS..=13 * MS).contains(&worker.pause()), "{:?}", worker.pause());
    assert_eq!(worker.turn(&["p", "q"]), (vec!["p".into()], 10));
    assert_eq!(worker.turn(&["q"]).0, Vec::<String>::new());
    let opening = worker.paces.next_opening().unwrap();
    worker.now = opening;
    worker.paces.announce(opening);
    assert_eq!(worker.paces.next_opening(), None, "it is announced once");
    assert_eq!(worker.turn(&["p", "q"]), (vec!["q".into()], 12), "past both");
    assert_eq!(worker.turn(&["p", "q"]), (vec!["p".into()], 10), "one claim at a time");
    assert_eq!(worker.claims("aaa"), 3);
    assert_eq!(worker.turn(&["p", "q"]), (vec!["p".into(), "q".into()], 10));
    worker.now += Duration::from_secs(3);
    worker.paces.announce(worker.now);
    assert!(worker.paces.0.is_empty(), "it is forgotten");
    assert_eq!(worker.turn(&["p", "q"]).0.len(), 2);
}

#[test]
fn pauses_grow_with_what_is_released_while_nothing_else_is_found() {
    let mut worker = Worker::new();
    let pauses = |worker: &mut Worker, kinds: &str, count: usize| {
        for _ in 0..count {
            worker.claims(kinds);
            worker.now += worker.pause();
            worker.turn(&["q"]);
        }
        worker.claims(kinds);
        worker.pause()
    };
    assert!(pauses(&mut worker, "b", 100) <= 50 * MS, "few foreign tasks delay nobody");
    let long = pauses(&mut worker, &"b".repeat(500), 100);
    assert!((1_500 * MS..=2_500 * MS).contains(&long), "250 tasks a second: {long:?}");
    let mixed = format!("a{}", "b".repeat(500));
    assert!(pauses(&mut worker, &mixed, 1) <= 160 * MS);
}

#[test]
fn large_payloads_are_released_seldom() {
    let mut worker = Worker::new();
    let mut heavy = tasks("b");
    heavy[0].payload = vec![0; 1024 * 1024].into();
    for _ in 0..20 {
        worker.paces.part(heavy.clone(), |_| false, worker.now, &mut worker.dice);
    }
    assert!(worker.pause() >= 150 * MS, "{:?}", worker.pause());
}

/// One worker of a simulated queue: it handles one kind, and a claim or release takes it a millisecond.
struct Sim {
    paces: ClaimPaces,
    kind: char,
    slots: usize,
    run_ms: u64,
    /// Until when its runs go on.
    running: Vec<u64>,
    /// The tasks of the claim in progress, and the millisecond at which they start or are released.
    arriving: Option<(u64, Vec<(usize, Claimed)>)>,
    released: u64,
}

impl Sim {
    fn new(kind: char, slots: usize, run_ms: u64) -> Self {
        Self {
            paces: ClaimPaces::default(),
            kind,
            slots,
            run_ms,
            running: Vec::new(),
            arriving: None,
            released: 0,
        }
    }
}

/// Runs a queue of tasks, submitted at these milliseconds; answers each one's delay, in their order.
fn simulate(submits: &[(u64, char)], workers: &mut [Sim]) -> Vec<u64> {
    let (began, served, mut dice) = (Instant::now(), queues(&["q"]), Dice::seeded(7));
    let mut pending: Vec<(usize, Claimed)> = Vec::new();
    let (mut delays, mut left, mut next) = (vec![0; submits.len()], submits.len(), 0);
    for ms in 0..60_000_u64 {
        let now = began + MS * u32::try_from(ms).unwrap();
        while next < submits.len() && submits[next].0 <= ms {
            pending.push((next, tasks(&submits[next].1.to_string()).remove(0)));
            next += 1;
        }
        for worker in workers.iter_mut() {
            worker.running.retain(|until| *until > ms);
            if let Some((_, arrived)) = worker.arriving.take_if(|(at, _)| *at <= ms) {
                for (number, task) in arrived {
                    if task.kind.as_str() == worker.kind.to_string() {
                        delays[number] = ms - submits[number].0;
                        left -= 1;
                        worker.running.push(ms + worker.run_ms);
                    } else {
                        worker.released += 1;
                        let place = pending.partition_point(|(other, _)| *other < number);
                        pending.insert(place, (number, task));
                    }
                }
            }
            let room = worker.slots.saturating_sub(worker.running.len());
            if room == 0 || worker.arriving.is_some() {
                continue;
            }
            let turn = worker.paces.turn(Cow::Borrowed(&served), room, now);
            if turn.queues.weighted.is_empty() {
                continue;
            }
            let claimed: Vec<_> = pending.drain(..turn.limit.min(pending.len())).collect();
            let handles = |task: &Claimed| task.kind.as_str() == worker.kind.to_string();
            let copy = claimed.iter().map(|(_, task)| task.clone()).collect();
            worker.paces.part(copy, handles, now + MS, &mut dice);
            worker.arriving = Some((ms + 1, claimed));
        }
        if left == 0 {
            return delays;
        }
    }
    panic!("{left} tasks never started");
}

fn worst(delays: &[u64]) -> u64 {
    delays.iter().copied().max().unwrap()
}

fn mixed(count: u64, every_ms: u64) -> Vec<(u64, char)> {
    (0..count).map(|n| (n * every_ms, if n % 2 == 0 { 'a' } else { 'b' })).collect()
}

#[test]
fn tasks_of_two_workers_that_come_one_by_one_start_within_100_ms() {
    for every_ms in [1, 3, 10, 50] {
        let mut workers = [Sim::new('a', 20, 2), Sim::new('b', 4, 2)];
        let delays = simulate(&mixed(1_000, every_ms), &mut workers);
        assert!(worst(&delays) < 100, "every {every_ms} ms: {}", worst(&delays));
    }
}

#[test]
fn a_worker_without_tasks_delays_its_neighbour_little() {
    let submits: Vec<_> = (0..1_000).map(|n| (n * 5, 'b')).collect();
    let mut workers = [Sim::new('a', 20, 2), Sim::new('b', 4, 2)];
    let delays = simulate(&submits, &mut workers);
    assert!(worst(&delays) < 100, "{}", worst(&delays));
    assert!(workers[0].released < 260, "{} released in 5 s", workers[0].released);
}

#[test]
fn own_tasks_among_a_thousand_foreign_ones_do_not_wait_for_a_busy_neighbour() {
    let submits: Vec<_> = (0..1_000).map(|n| (0, if n % 2 == 0 { 'a' } else { 'b' })).collect();
    let mut workers = [Sim::new('a', 20, 2), Sim::new('b', 4, 50)];
    let delays = simulate(&submits, &mut workers);
    let own = delays.iter().step_by(2).copied().collect::<Vec<_>>();
    assert!(worst(&own) < 3_000, "{} of {}", worst(&own), worst(&delays));
    let foreign = worst(&delays);
    assert!(foreign < 500 * 50 / 4 + 2_000, "the neighbour needs 6 s anyway: {foreign}");
}

#[test]
fn nothing_spins_while_a_neighbour_is_busy_for_long() {
    let submits: Vec<_> = (0..20).map(|_| (0, 'b')).collect();
    let mut workers = [Sim::new('a', 20, 2), Sim::new('b', 2, 1_000)];
    simulate(&submits, &mut workers);
    // 9 s, in which 250 tasks a second may be released.
    assert!(workers[0].released < 9 * 350, "{}", workers[0].released);
}
