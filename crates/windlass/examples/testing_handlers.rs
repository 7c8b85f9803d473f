//! How to test handlers: a harness instead of a database, a clock that is moved by hand.
//!
//! The tests at the end are what you would write; `main` runs them, so that this example shows
//! something: `cargo run -p windlass --example testing_handlers`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::core::State;
use windlass::prelude::*;
use windlass::testing::Harness;
use windlass::{Result, WorkerBuilder};

// ── the program ──────────────────────────────────────────────────────────────────────────────────

#[derive(Serialize, Deserialize)]
struct SignUp {
    address: String,
}

impl Task for SignUp {
    const KIND: &'static str = "user.sign_up";
    type Output = ();
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Remind {
    address: String,
}

impl Task for Remind {
    const KIND: &'static str = "user.remind";
    type Output = ();
}

/// What the handlers share. In production a mailer that sends; in tests one that remembers.
struct Mailer {
    sent: Mutex<Vec<String>>,
    is_down: Mutex<bool>,
}

impl Mailer {
    fn send(&self, text: String) -> std::result::Result<(), &'static str> {
        if *self.is_down.lock().map_err(|_| "poisoned")? {
            return Err("the mail server is down");
        }
        self.sent.lock().map_err(|_| "poisoned")?.push(text);
        Ok(())
    }
}

async fn sign_up(task: SignUp, cx: Context<&'static Mailer>) -> Outcome<()> {
    if !task.address.contains('@') {
        return Err(discard("not an address"));
    }
    cx.state().send(format!("welcome, {}", task.address))?;
    let week = Duration::from_secs(7 * 24 * 3_600);
    cx.client().enqueue(Remind { address: task.address }).delay(week).await?;
    Ok(())
}

async fn remind(task: Remind, cx: Context<&'static Mailer>) -> Outcome<()> {
    Ok(cx.state().send(format!("still there, {}?", task.address))?)
}

/// The one place that says what the worker does: `main` and the tests use the same.
fn set_up(worker: WorkerBuilder<()>, mailer: &'static Mailer) -> WorkerBuilder<&'static Mailer> {
    worker.state(mailer).handle(sign_up).handle(remind)
}

// ── its tests ────────────────────────────────────────────────────────────────────────────────────

fn harness() -> Result<(Harness, &'static Mailer)> {
    let mailer = Mailer { sent: Mutex::default(), is_down: Mutex::new(false) };
    let mailer: &'static Mailer = Box::leak(Box::new(mailer));
    Ok((Harness::new(|worker| set_up(worker, mailer))?, mailer))
}

async fn a_reminder_follows_a_week_later() -> Result<()> {
    let (harness, mailer) = harness()?;
    harness.client().enqueue(SignUp { address: "a@b.c".into() }).await?;
    harness.drain().await?;
    assert_eq!(harness.waiting::<Remind>().await?, [Remind { address: "a@b.c".into() }]);
    harness.advance(Duration::from_secs(7 * 24 * 3_600)).await?;
    harness.drain().await?;
    let sent = mailer.sent.lock().expect("no handler panics").clone();
    assert_eq!(sent, ["welcome, a@b.c", "still there, a@b.c?"]);
    Ok(())
}

async fn a_wrong_address_is_not_tried_again() -> Result<()> {
    let (harness, _) = harness()?;
    let handle = harness.client().enqueue(SignUp { address: "nobody".into() }).await?;
    harness.drain().await?;
    let task = harness.task(&handle).await?;
    assert_eq!((task.state, task.attempts), (State::DeadLetter, 1));
    assert_eq!(task.history.last_error(), Some("not an address"));
    Ok(())
}

async fn an_outage_of_the_mail_server_is_waited_out() -> Result<()> {
    let (harness, mailer) = harness()?;
    let handle = harness.client().enqueue(SignUp { address: "a@b.c".into() }).await?;
    *mailer.is_down.lock().expect("no handler panics") = true;
    harness.drain().await?;
    assert_eq!(harness.task(&handle).await?.state, State::Retrying);
    *mailer.is_down.lock().expect("no handler panics") = false;
    harness.advance(Duration::from_secs(10)).await?;
    harness.drain().await?;
    assert_eq!(harness.task(&handle).await?.state, State::Completed);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    a_reminder_follows_a_week_later().await?;
    a_wrong_address_is_not_tried_again().await?;
    an_outage_of_the_mail_server_is_waited_out().await?;
    println!("three tests, no database, no waiting");
    Ok(())
}
