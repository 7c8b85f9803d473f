//! A lively mix of sample tasks for `windlass dev --demo`, made of the built-in kinds.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass::core::dice::Dice;
use windlass::{Client, Configure, Options, Priority, Result, State};

/// No more is fed while more than this waits: nobody may be working.
const WAITING_MAX: u64 = 500;
/// The mean pause between two tasks.
const PAUSE: Duration = Duration::from_millis(300);
/// The demo should not fill the disk.
const RETENTION: Duration = Duration::from_secs(3_600);

/// Feeds the store until the future ends. A store that is away is waited for.
pub(crate) async fn demo(client: Client, stop: impl Future<Output = ()>) {
    tokio::select! {
        () = stop => {}
        never = feed(&client) => match never {},
    }
}

async fn feed(client: &Client) -> Infallible {
    let mut dice = Dice::thrown();
    for number in 1_u64.. {
        if let Err(error) = feed_one(client, number, &mut dice).await {
            tracing::warn!(error = error.chain(), "the demo could not submit a task; it goes on");
        }
        tokio::time::sleep(PAUSE.mul_f64(0.5 + dice.unit())).await;
    }
    std::future::pending().await
}

async fn feed_one(client: &Client, number: u64, dice: &mut Dice) -> Result<()> {
    if waiting(client).await? > WAITING_MAX {
        return Ok(());
    }
    let Sample { kind, payload, options } = sample(number, dice);
    let payload = Bytes::from(payload.to_string());
    client.enqueue_raw(kind, payload, options.tag("demo").retention(RETENTION)).await?;
    Ok(())
}

async fn waiting(client: &Client) -> Result<u64> {
    let queues = client.store().queues().await?;
    let states = [State::Pending, State::Scheduled, State::Retrying];
    Ok(queues.iter().flat_map(|queue| states.map(|state| queue.counts.get(state))).sum())
}

struct Sample {
    kind: &'static str,
    payload: Value,
    options: Options,
}

/// The next task: one that always succeeds most often, one that never does rarely.
fn sample(number: u64, dice: &mut Dice) -> Sample {
    let between = |dice: &mut Dice, least: u64, most: u64| {
        least + (dice.unit() * (most - least) as f64) as u64
    };
    let (plain, mail, report) =
        (Options::new(), Options::new().queue("mail"), Options::new().queue("reports"));
    let user = between(dice, 1, 100);
    let address = format!("user{user}@example.com");
    let (kind, payload, options) = match between(dice, 0, 100) {
        0..25 => ("echo", json!({ "number": number, "greeting": "hello" }), plain),
        25..40 => {
            let payload = json!({ "to": address, "subject": "welcome" });
            ("echo", payload, mail.priority(Priority::High).tag("welcome"))
        }
        40..60 => ("sleep", json!({ "ms": between(dice, 50, 600) }), mail.tag("newsletter")),
        60..72 => {
            let payload = json!({ "ms": between(dice, 800, 3_000) });
            ("sleep", payload, report.priority(Priority::Low))
        }
        72..80 => {
            let delay = Duration::from_secs(between(dice, 5, 30));
            ("echo", json!({ "remind": address }), plain.delay(delay).tag("reminder"))
        }
        80..88 => {
            let times = between(dice, 1, 3);
            let payload = json!({ "message": "the mail server did not answer", "times": times });
            ("fail", payload, mail.tag("flaky").metadata("user", &user.to_string()))
        }
        88..90 => {
            let payload = json!({ "message": format!("no account {address}") });
            ("fail", payload, plain.max_retries(1).tag("hopeless"))
        }
        90..95 => {
            // A second one is not made while the first is under way.
            let options = report.unique("demo-inventory").or_existing().tag("inventory");
            ("sleep", json!({ "ms": 4_000 }), options)
        }
        _ => ("noop", Value::Null, plain.priority(Priority::Critical)),
    };
    Sample { kind, payload, options }
}

#[cfg(test)]
mod tests {
    use windlass::core::ErrorKind;
    use windlass_testkit::Method;
    use windlass_testkit::fleet::Fleet;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_few_tasks_a_second_of_all_sorts() {
        let fleet = Fleet::new();
        demo(fleet.client.clone(), tokio::time::sleep(MINUTE * 2)).await;
        let tasks = fleet.all().await;
        assert!((300..600).contains(&tasks.len()), "{}", tasks.len());
        for kind in ["echo", "sleep", "fail", "noop"] {
            assert!(tasks.iter().any(|task| task.kind.as_str() == kind), "{kind}");
        }
        for queue in ["default", "mail", "reports"] {
            assert!(tasks.iter().any(|task| task.queue.as_str() == queue), "{queue}");
        }
        for priority in Priority::DESCENDING {
            assert!(tasks.iter().any(|task| task.priority == priority), "{priority:?}");
        }
        assert!(tasks.iter().any(|task| task.state == State::Scheduled));
        let of_tag = |name| {
            let has = |tag: &windlass::core::Tag| tag.as_str() == name;
            tasks.iter().filter(|task| task.spec.extras.tags.iter().any(has)).count()
        };
        assert_eq!((of_tag("demo"), of_tag("inventory")), (tasks.len(), 1), "one is unique");
    }

    #[tokio::test(start_paused = true)]
    async fn the_backlog_is_bounded() {
        let fleet = Fleet::new();
        demo(fleet.client.clone(), tokio::time::sleep(MINUTE * 30)).await;
        assert_eq!(fleet.all().await.len() as u64, WAITING_MAX + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_of_the_store_are_survived() {
        let fleet = Fleet::new();
        let seat = fleet.seat();
        seat.faults.fail(Method::Queues, 5, ErrorKind::Corrupt);
        seat.faults.fail(Method::Insert, 5, ErrorKind::Corrupt);
        seat.faults.go_away();
        let faults = seat.faults.clone();
        let stop = async {
            tokio::time::sleep(MINUTE).await;
            faults.come_back();
            tokio::time::sleep(MINUTE).await;
        };
        demo(seat.client.clone(), stop).await;
        assert!(!seat.faults.is_planned(Method::Insert));
        assert!(fleet.all().await.len() > 100);
    }

    #[test]
    fn every_sample_is_one_that_the_built_in_kinds_take() {
        let mut dice = Dice::seeded(1);
        for number in 0..10_000 {
            let Sample { kind, payload, .. } = sample(number, &mut dice);
            match kind {
                "sleep" => assert!(payload["ms"].is_u64(), "{payload}"),
                "fail" => assert!(payload["message"].is_string(), "{payload}"),
                "echo" | "noop" => {}
                other => panic!("{other}"),
            }
        }
    }
}
