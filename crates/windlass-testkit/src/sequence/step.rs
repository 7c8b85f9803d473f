//! The steps of a random sequence, and how proptest makes them.
//!
//! A step names tasks, leases, workers and terms by [`Index`], a share of however many there are
//! when it is taken, so that a sequence keeps its sense while proptest shortens it.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select, subsequence};
use windlass_core::store::{Action, RunOrder};
use windlass_core::unique::{Hold, OnConflict};
use windlass_core::{Ending, Priority, State, When};

/// The queues of a sequence.
pub(super) const QUEUES: [&str; 2] = ["alpha", "beta"];
/// The kinds of a sequence.
pub(super) const KINDS: [&str; 2] = ["mail", "sort"];
/// The keys of a sequence, few enough to meet.
const KEYS: [&str; 2] = ["k1", "k2"];
/// Slots for workers.
pub(super) const WORKERS: usize = 3;
/// Delays, retentions and moves of the clock, in ms: few enough to fall on the same instants.
const TIMES: [u64; 7] = [0, 1, 999, 1_000, 5_000, 15_000, 16_000];

/// One call, or one move of the clock.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Insert(Vec<Wish>),
    InsertAgain(Index),
    Beat(Sign),
    Claim(Ask),
    Apply {
        endings: Vec<(Pick, Ending, Option<Duration>)>,
        then_claim: Option<Ask>,
    },
    Leave(usize),
    Seek(usize),
    Renew(Index),
    Resign(Index),
    Promote(Pick),
    Expire(Pick),
    Prune(Pick),
    Tend(Pick),
    Change {
        tasks: Vec<Index>,
        action: Action,
        only_in: Vec<State>,
    },
    ChangeMatching {
        filter: Narrow,
        action: Action,
        only_in: Vec<State>,
        limit: usize,
    },
    OrderQueue(usize, RunOrder),
    OrderWorker(usize, RunOrder),
    Save {
        key: usize,
        expected: Option<u64>,
        body: Option<String>,
    },
    List(Narrow),
    Advance(Duration),
    /// A long time passes, after which nobody is who they were.
    Sleep(Duration),
}

/// One of many.
#[derive(Debug, Clone)]
pub(super) enum Pick {
    /// The last.
    Newest,
    /// One of the last few.
    Recent(Index),
    /// Any.
    Any(Index),
}

impl Pick {
    /// The place of the chosen one among `count`, if there is any.
    pub(super) fn of(&self, count: usize) -> Option<usize> {
        if count == 0 {
            return None;
        }
        Some(match self {
            Self::Newest => count - 1,
            Self::Recent(index) => {
                let last = count.min(4);
                count - last + index.index(last)
            }
            Self::Any(index) => index.index(count),
        })
    }
}

/// A task to submit.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) queue: usize,
    pub(super) kind: usize,
    pub(super) priority: Priority,
    pub(super) payload: Vec<u8>,
    pub(super) when: Option<Duration>,
    pub(super) max_retries: u32,
    pub(super) max_crashes: u32,
    pub(super) retention: Duration,
    pub(super) is_tagged: bool,
    pub(super) idempotency: Option<&'static str>,
    pub(super) unique: Option<(Option<&'static str>, Hold, OnConflict)>,
}

/// A sign of life.
#[derive(Debug, Clone)]
pub(super) struct Sign {
    pub(super) worker: usize,
    pub(super) lease: Duration,
    /// The queues that it serves.
    pub(super) serves: Vec<usize>,
    /// Which of its leases it names (by the bits), and from what age on.
    pub(super) held: Option<(u8, Duration)>,
    pub(super) progress: Option<Pick>,
}

/// A claim.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) worker: usize,
    pub(super) quotas: Vec<(usize, usize, Vec<Priority>)>,
    pub(super) limit: usize,
    pub(super) suspects_at_most: usize,
}

/// A filter.
#[derive(Debug, Clone)]
pub(super) struct Narrow {
    pub(super) states: Vec<State>,
    pub(super) queue: Option<usize>,
    pub(super) kind: Option<usize>,
    pub(super) priority: Option<Priority>,
    pub(super) is_tagged: bool,
    pub(super) created_after: Option<Duration>,
    pub(super) finished_before: Option<Duration>,
}

/// A whole sequence.
pub(super) fn sequence() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..80)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vec(wish(), 1..4).prop_map(Step::Insert),
        1 => any::<Index>().prop_map(Step::InsertAgain),
        6 => sign().prop_map(Step::Beat),
        9 => ask().prop_map(Step::Claim),
        9 => (vec((pick(), ending(), option::of(time())), 1..4), option::weighted(0.3, ask()))
            .prop_map(|(endings, then_claim)| Step::Apply { endings, then_claim }),
        1 => (0..WORKERS).prop_map(Step::Leave),
        2 => (0..2_usize).prop_map(Step::Seek),
        1 => any::<Index>().prop_map(Step::Renew),
        1 => any::<Index>().prop_map(Step::Resign),
        4 => term().prop_map(Step::Promote),
        4 => term().prop_map(Step::Expire),
        2 => term().prop_map(Step::Prune),
        1 => term().prop_map(Step::Tend),
        6 => (vec(any::<Index>(), 1..4), action(), only_in())
            .prop_map(|(tasks, action, only_in)| Step::Change { tasks, action, only_in }),
        2 => (narrow(), action(), only_in(), 1..5_usize).prop_map(
            |(filter, action, only_in, limit)| Step::ChangeMatching {
                filter, action, only_in, limit
            }
        ),
        1 => (0..QUEUES.len(), select(vec![RunOrder::Run, RunOrder::Run, RunOrder::Pause]))
            .prop_map(|(queue, order)| Step::OrderQueue(queue, order)),
        1 => (0..WORKERS, select(vec![RunOrder::Run, RunOrder::Pause, RunOrder::Drain]))
            .prop_map(|(worker, order)| Step::OrderWorker(worker, order)),
        1 => (0..2_usize, option::of(0..3_u64), option::of("[a-z{}\"é ]{0,8}"))
            .prop_map(|(key, expected, body)| Step::Save { key, expected, body }),
        1 => narrow().prop_map(Step::List),
        8 => time().prop_map(Step::Advance),
        1 => select(vec![600, 3_599, 3_600, 90_000])
            .prop_map(|seconds| Step::Sleep(Duration::from_secs(seconds))),
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    select(TIMES.to_vec()).prop_map(Duration::from_millis)
}

/// A lease: most often one that may still be valid.
fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        2 => Just(Pick::Newest),
        4 => any::<Index>().prop_map(Pick::Recent),
        2 => any::<Index>().prop_map(Pick::Any),
    ]
}

/// A term: most often the present one.
fn term() -> impl Strategy<Value = Pick> {
    prop_oneof![
        5 => Just(Pick::Newest),
        1 => any::<Index>().prop_map(Pick::Any),
    ]
}

fn priority() -> impl Strategy<Value = Priority> {
    select(Priority::DESCENDING.to_vec())
}

fn key() -> impl Strategy<Value = &'static str> {
    select(KEYS.to_vec())
}

fn wish() -> impl Strategy<Value = Wish> {
    let hold = prop_oneof![
        2 => Just(Hold::UntilFinished),
        1 => time().prop_map(Hold::For),
        1 => Just(Hold::For(Duration::from_secs(4_000))),
    ];
    let on_conflict = select(vec![OnConflict::Reject, OnConflict::Return]);
    let unique = (option::weighted(0.8, key()), hold, on_conflict);
    let place = (0..QUEUES.len(), 0..KINDS.len(), priority());
    let budget = (0..3_u32, 0..4_u32, prop_oneof![time(), Just(Duration::from_secs(3_600))]);
    (
        place,
        budget,
        select(vec![b"".to_vec(), b"\0\xff".to_vec(), b"{}".to_vec()]),
        option::weighted(0.3, time()),
        any::<bool>(),
        option::weighted(0.25, key()),
        option::weighted(0.35, unique),
    )
        .prop_map(|(place, budget, payload, when, is_tagged, idempotency, unique)| Wish {
            queue: place.0,
            kind: place.1,
            priority: place.2,
            payload,
            when,
            max_retries: budget.0,
            max_crashes: budget.1,
            retention: budget.2,
            is_tagged,
            idempotency,
            unique,
        })
}

fn sign() -> impl Strategy<Value = Sign> {
    // Not shorter: a beat is given up when its lease would be over by the machine's own time, which may be busy.
    let lease = select(vec![5_000_u64, 15_000, 15_000, 60_000]).prop_map(Duration::from_millis);
    let held = option::weighted(0.35, (any::<u8>(), time()));
    let serves = subsequence((0..QUEUES.len()).collect::<Vec<_>>(), 0..=QUEUES.len());
    (0..WORKERS, lease, serves, held, option::weighted(0.3, pick())).prop_map(
        |(worker, lease, serves, held, progress)| Sign { worker, lease, serves, held, progress },
    )
}

fn ask() -> impl Strategy<Value = Ask> {
    let priorities = prop_oneof![
        3 => Just(Priority::DESCENDING.to_vec()),
        1 => subsequence(Priority::DESCENDING.to_vec(), 1..4),
    ];
    let quotas = vec((0..QUEUES.len(), 0..5_usize, priorities), 1..4);
    (0..WORKERS, quotas, 1..7_usize, 0..3_usize).prop_map(
        |(worker, quotas, limit, suspects_at_most)| Ask { worker, quotas, limit, suspects_at_most },
    )
}

fn ending() -> impl Strategy<Value = Ending> {
    let error = || select(vec![String::new(), "böse \0 'x'".into(), "boom".into()]);
    prop_oneof![
        3 => option::of(Just(b"\0result".to_vec()))
            .prop_map(|result| Ending::Completed { result: result.map(Into::into) }),
        4 => (error(), option::of(time()))
            .prop_map(|(error, retry_after)| Ending::Failed { error, retry_after }),
        1 => Just(Ending::TimedOut),
        1 => error().prop_map(|error| Ending::Discarded { error }),
        1 => any::<bool>().prop_map(|has_started| Ending::DeadlinePassed { has_started }),
        1 => time().prop_map(|delay| Ending::Snoozed { delay }),
        1 => Just(Ending::PutOff),
        2 => Just(Ending::Released),
        1 => Just(Ending::HandledElsewhere),
        1 => time().prop_map(|delay| Ending::Unhandled { delay }),
        1 => Just(Ending::Cancelled),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Cancel),
        4 => Just(Action::Rerun),
        2 => time().prop_map(|delay| Action::Reschedule(When::After(delay))),
        2 => Just(Action::Delete),
    ]
}

fn only_in() -> impl Strategy<Value = Vec<State>> {
    prop_oneof![
        4 => Just(Vec::new()),
        1 => subsequence(State::ALL.to_vec(), 1..4),
    ]
}

fn narrow() -> impl Strategy<Value = Narrow> {
    (
        prop_oneof![Just(Vec::new()), subsequence(State::ALL.to_vec(), 1..4)],
        option::of(0..QUEUES.len()),
        option::weighted(0.3, 0..KINDS.len()),
        option::weighted(0.2, priority()),
        proptest::bool::weighted(0.2),
        option::weighted(0.2, time()),
        option::weighted(0.2, time()),
    )
        .prop_map(
            |(states, queue, kind, priority, is_tagged, created_after, finished_before)| Narrow {
                states,
                queue,
                kind,
                priority,
                is_tagged,
                created_after,
                finished_before,
            },
        )
}
