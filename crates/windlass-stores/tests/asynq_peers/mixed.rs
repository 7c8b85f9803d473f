//! One queue, worked by windlass and Go together while both die, leave and are meddled with at random:
//! nothing is lost, every task ends once, and at any moment all keys are as asynq takes for granted.

mod fleet;
mod meddle;

use fleet::Fleet;

const STEPS: usize = 1_500;

async fn check(seed: u64) {
    let mut fleet = Fleet::new(seed).await;
    fleet.recruit().await;
    for step in 0..STEPS {
        fleet.step().await;
        if step % 25 == 0 {
            fleet.ground.sound(&format!("at step {step} of seed {seed}")).await;
        }
    }
    fleet.drain().await;
    fleet.judge().await;
}

/// `WINDLASS_SEED` plays one again, `WINDLASS_CASES` plays so many.
fn seeds() -> std::ops::Range<u64> {
    let told = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (told("WINDLASS_SEED"), told("WINDLASS_CASES")) {
        (Some(seed), _) => seed..seed + 1,
        (None, cases) => 1..cases.unwrap_or(2) + 1,
    }
}

#[tokio::test]
async fn both_work_one_queue_and_die_at_random() {
    for seed in seeds() {
        check(seed).await;
    }
}
