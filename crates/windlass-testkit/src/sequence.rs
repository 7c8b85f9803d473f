//! Random sequences: whatever is called, in whatever order, a store agrees with the memory store.
//!
//! A case is a list of [`Step`]s, made by proptest from a seed. Each step is done to the subject
//! and to the memory store ([`side`]), on clocks that are moved together. After each step the
//! replies must agree, and so must every record, queue and worker; at the end also lists,
//! documents and audit. Where the contract leaves the order of a claim open, the memory store
//! judges whether the subject's choice is a permissible one and then makes the same. Epochs and
//! terms differ in value; they are translated, and must grow.
//!
//! A failing case is made as short as possible and printed with its seed. To replay it:
//!
//! ```text
//! WINDLASS_SEED=12345 cargo test -p windlass-stores --test sequences
//! ```
//!
//! `WINDLASS_CASES=1000` runs more cases than the usual few, from a seed that is new each time.

mod act;
mod compare;
mod side;
mod step;

use std::env;
use std::str::FromStr;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use step::Step;

use crate::subject::Subject;
use side::Sides;

/// Cases in a usual run: seconds, not minutes.
const CASES: u64 = 25;
/// Most tries at making a failing case shorter.
const SHRINK_TRIES: u32 = 2_000;

/// Makes the test that compares a store with the memory store.
#[macro_export]
macro_rules! sequences {
    ($subject:ty) => {
        #[test]
        fn in_random_sequences_the_store_agrees_with_the_memory_store() {
            $crate::sequence::run::<$subject>();
        }
    };
}

/// Runs random sequences, as many as `WINDLASS_CASES` says, or the one of `WINDLASS_SEED`.
pub fn run<S: Subject>() {
    let told_seed: Option<u64> = variable("WINDLASS_SEED");
    let cases = variable("WINDLASS_CASES").unwrap_or(if told_seed.is_some() { 1 } else { CASES });
    let first_seed = told_seed.unwrap_or_else(|| fastrand::u64(..u64::from(u32::MAX)));
    for seed in (0..cases).map(|case| first_seed.wrapping_add(case)) {
        run_one::<S>(seed);
    }
}

fn run_one<S: Subject>(seed: u64) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config {
        cases: 1,
        max_shrink_iters: SHRINK_TRIES,
        failure_persistence: None,
        ..Config::default()
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let answer = TestRunner::new_with_rng(config, rng).run(&step::sequence(), |steps| {
        runtime.block_on(agree::<S>(steps)).map_err(TestCaseError::fail)
    });
    match answer {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("  {step:?}")).collect();
            panic!(
                "{why}\nthe shortest such sequence found:\n{}\n\
                 replay it with WINDLASS_SEED={seed}",
                steps.join("\n")
            );
        }
        Err(TestError::Abort(why)) => panic!("no sequence could be made: {why}"),
    }
}

/// Does one sequence to a fresh subject and a fresh oracle.
async fn agree<S: Subject>(steps: Vec<Step>) -> Result<(), String> {
    let mut sides = Sides::new::<S>().await;
    for (number, step) in steps.into_iter().enumerate() {
        let told = format!("step {number}, {step:?}");
        let done = async {
            sides.take(step).await?;
            sides.compare_all().await
        };
        done.await.map_err(|why| format!("{told}\n{why}"))?;
    }
    sides.compare_at_the_end().await.map_err(|why| format!("at the end\n{why}"))
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} should be a number, not {text:?}"),
    }
}
