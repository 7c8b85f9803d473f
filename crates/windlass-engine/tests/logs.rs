//! What is logged: an outage in two lines, each dead letter with its error, and at DEBUG each run.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::LevelFilter;
use windlass_core::State;
use windlass_engine::{Configure, Context, Failure, Options};
use windlass_testkit::fleet::{Do, Fleet, check_ended};

const SECOND: Duration = Duration::from_secs(1);

/// The lines that this thread has logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Logs of this thread go here until the guard is dropped.
    fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this level and text.
    fn lines(&self, level: &str, text: &str) -> Vec<String> {
        let all = String::from_utf8(self.0.lock().clone()).unwrap();
        let is_it = |line: &&str| line.contains(&format!(" {level} ")) && line.contains(text);
        all.lines().filter(is_it).map(String::from).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_one_line_when_it_begins_and_one_when_it_ends() {
    let (log, _guard) = Log::begin();
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move {
        tokio::time::sleep(SECOND / 10).await;
        Ok(task.0)
    };
    let ids = fleet.submit_all(1_000).await;
    let worker = seat.worker().handle(handle).concurrency(5).start().await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    seat.faults.go_away();
    // Shorter than any lease or term.
    tokio::time::sleep(SECOND * 5).await;
    let begun = log.lines("WARN", "");
    assert_eq!(begun.len(), 1, "{begun:#?}");
    assert!(begun[0].contains("the store does not answer"), "{begun:?}");
    assert!(!log.lines("DEBUG", "upkeep failed").is_empty(), "the rest is at DEBUG");
    assert_eq!(log.lines("INFO", "the store answers again"), [""; 0]);
    seat.faults.come_back();
    fleet.all_ended(&ids).await;
    let ended = log.lines("INFO", "the store answers again");
    assert!(ended.len() == 1 && ended[0].contains("outage_s=5"), "{ended:?}");
    assert_eq!(log.lines("WARN", "").len(), 1);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_logged_with_its_error() {
    let (log, _guard) = Log::begin();
    let fleet = Fleet::new();
    let fails = |_: Do, _: Context<()>| async move { Err::<u64, Failure>("no luck".into()) };
    let worker = fleet.worker().handle(fails).start().await.unwrap();
    let task = fleet.submit_with(1, Options::new().max_retries(0)).await;
    check_ended(&fleet.ended(task.id()).await, State::DeadLetter, 1, 0);
    worker.stop().await.unwrap();
    let lines = log.lines("WARN", "dead letter");
    let id = task.id().to_string();
    let wanted = [id.as_str(), "type=do", "queue=default", "no luck"];
    assert!(lines.len() == 1 && wanted.iter().all(|it| lines[0].contains(it)), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_loses_its_workers_too_often_is_logged() {
    let (log, _guard) = Log::begin();
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let hang = |_: Do, _: Context<()>| std::future::pending();
    let dying = seat.worker().handle(hang).start().await.unwrap();
    let leader = fleet.worker().handle(hang).queue("none", 1).start().await.unwrap();
    let task = fleet.submit_with(1, Options::new().max_crashes(0)).await;
    tokio::time::sleep(SECOND * 5).await;
    seat.faults.cut();
    check_ended(&fleet.ended(task.id()).await, State::DeadLetter, 0, 1);
    let lines = log.lines("WARN", "dead letter");
    let id = task.id().to_string();
    let wanted = [id.as_str(), "type=do", "queue=default", "its worker was lost too often"];
    assert!(lines.len() == 1 && wanted.iter().all(|it| lines[0].contains(it)), "{lines:?}");
    leader.stop().await.unwrap();
    drop(dying);
}

#[tokio::test(start_paused = true)]
async fn each_run_is_logged_at_debug_with_its_outcome() {
    let (log, _guard) = Log::begin();
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit(1).await;
    fleet.ended(task.id()).await;
    worker.stop().await.unwrap();
    let id = task.id().to_string();
    for (text, more) in [("run started", "type=do"), ("run ended", "outcome=\"completed\"")] {
        let lines = log.lines("DEBUG", text);
        assert_eq!(lines.len(), 1, "{text}: {lines:?}");
        assert!(lines[0].contains(&id) && lines[0].contains(more), "{lines:?}");
    }
}
