//! Every command that submits or changes many tasks, in several requests: directly on a store, and over HTTP.

use std::net::Ipv4Addr;

use bytes::Bytes;
use clap::Parser;
use tokio_util::sync::CancellationToken;
use windlass::{Client, Configure, ErrorKind, Options, State, discard};
use windlass_server::{App, Listener};
use windlass_testkit::faults::{Faults, FaultyStore, Method};

use super::*;
use crate::exit::Code;
use crate::settings::Server;

/// More than two pieces of a sweep.
const COUNT: u64 = 1_200;
const QUEUE: &str = "mail";

/// The way to the store.
#[derive(Debug, Clone, Copy)]
enum Way {
    Direct,
    Http,
}

/// A store in memory with tasks of one queue.
struct Scene {
    client: Client,
    faults: Faults,
}

impl Scene {
    async fn empty() -> Self {
        let (store, faults) = FaultyStore::around(windlass::open("memory:").await.unwrap());
        Self { client: Client::new(store), faults }
    }

    async fn new() -> Self {
        let Self { client, faults } = Self::empty().await;
        for _ in 0..COUNT {
            let options = Options::new().queue(QUEUE);
            client.enqueue_raw("any", Bytes::new(), options).await.unwrap();
        }
        Self { client, faults }
    }

    /// Has all tasks run and end as dead letters.
    async fn kill(self) -> Self {
        let (end, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let worker = self.client.worker().queue(QUEUE, 1).concurrency(100);
        let worker = worker.handle_any(|_, _| async { Err(discard("no use")) });
        let worker = worker.after(move |_, _| _ = end.send(())).start().await.unwrap();
        for _ in 0..COUNT {
            ended.recv().await.unwrap();
        }
        worker.stop().await.unwrap();
        assert_eq!(self.count(State::DeadLetter).await, COUNT);
        self
    }

    async fn count(&self, state: State) -> u64 {
        let queues = self.client.store().queues().await.unwrap();
        queues.iter().map(|queue| queue.counts.get(state)).sum()
    }

    /// Has each of the next replies but the last end after one piece, as a long sweep does after 5 s.
    fn cut_pages(&self, pages: usize) {
        for _ in 1..pages {
            self.faults.pass_one(Method::Change);
            self.faults.fail(Method::Change, 1, ErrorKind::Unavailable);
        }
    }

    async fn run(&self, way: Way, line: &str) -> Done {
        let cli = Cli::try_parse_from(["windlass"].into_iter().chain(line.split(' '))).unwrap();
        let mut desk = Desk::set(&cli.globals).unwrap();
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        match way {
            Way::Direct => _ = desk.opened.set(self.client.clone()),
            Way::Http => {
                let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
                let server = Server::new(listener.url(), None, &cli.globals);
                desk.settings.server = Some(server);
                let app = App::new(self.client.clone());
                tokio::spawn(listener.serve(app, stop.cancelled_owned()));
            }
        }
        match cli.command {
            Command::Task(command) => task::run(command, &desk).await,
            Command::Dlq(command) => dlq::run(command, &desk).await,
            Command::Queue(command) => queue::run(command, &desk).await,
            Command::Enqueue(args) => enqueue::run(args, &desk).await,
            _ => panic!("{line} changes no tasks"),
        }
    }
}

/// The command changes all tasks, over three pages; `after` is their state then, nothing when they are gone.
async fn check(line: &str, is_dead: bool, after: Option<State>) {
    for way in [Way::Direct, Way::Http] {
        let scene = Scene::new().await;
        let scene = if is_dead { scene.kill().await } else { scene };
        scene.cut_pages(3);
        scene.run(way, line).await.unwrap_or_else(|failure| panic!("{line} {way:?}: {failure}"));
        assert!(!scene.faults.is_planned(Method::Change), "{line} {way:?}: it took fewer pages");
        for state in State::ALL {
            let expected = if Some(state) == after { COUNT } else { 0 };
            assert_eq!(scene.count(state).await, expected, "{line} {way:?}: {state:?}");
        }
    }
}

#[tokio::test]
async fn queue_purge_goes_on_to_the_end() {
    check("queue purge mail --yes", false, None).await;
}

#[tokio::test]
async fn dlq_retry_goes_on_to_the_end() {
    check("dlq retry --all", true, Some(State::Pending)).await;
    check("dlq retry --queue mail", true, Some(State::Pending)).await;
}

#[tokio::test]
async fn dlq_purge_goes_on_to_the_end() {
    check("dlq purge --yes", true, None).await;
    check("dlq purge --queue mail --yes", true, None).await;
}

#[tokio::test]
async fn task_changes_by_filter_go_on_to_the_end() {
    check("task cancel --queue mail --yes", false, Some(State::Cancelled)).await;
    check("task snooze --queue mail --for 1h --yes", false, Some(State::Scheduled)).await;
    check("task delete --queue mail --yes", false, None).await;
    check("task delete --all --yes", false, None).await;
    check("task retry --state dead_letter --yes", true, Some(State::Pending)).await;
}

#[tokio::test]
async fn a_failure_half_way_says_how_far_it_came() {
    let scene = Scene::new().await;
    scene.cut_pages(2);
    scene.faults.fail(Method::Change, 1, ErrorKind::Unavailable);
    let failure = scene.run(Way::Http, "queue purge mail --yes").await.unwrap_err();
    assert_eq!(failure.code, Code::Unreachable);
    assert!(failure.text.ends_with("; 500 tasks changed before"), "{failure}");
    assert_eq!(scene.count(State::Pending).await, COUNT - 500);
}

#[tokio::test]
async fn a_purge_without_such_a_queue_is_not_found() {
    let scene = Scene::new().await;
    let failure = scene.run(Way::Direct, "queue purge post --yes").await.unwrap_err();
    assert_eq!(failure.code, Code::NotFound);
}

/// As much as a payload may have, as a file.
fn large_payload() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("\"{}\"", "x".repeat(1_000_000))).unwrap();
    file
}

#[tokio::test]
async fn enqueue_sends_large_tasks_in_several_requests() {
    let payload = large_payload();
    let line = format!("enqueue any @{} --count 40 -o table", payload.path().display());
    for way in [Way::Direct, Way::Http] {
        let scene = Scene::empty().await;
        scene.run(way, &line).await.unwrap_or_else(|failure| panic!("{way:?}: {failure}"));
        assert_eq!(scene.count(State::Pending).await, 40, "{way:?}");
        assert_eq!(scene.faults.calls(Method::Insert), 5, "{way:?}: eight to a request");
    }
}

#[tokio::test]
async fn enqueue_that_fails_half_way_is_done_partly() {
    let line = "enqueue any --count 2500 -o table";
    let scene = Scene::empty().await;
    scene.faults.pass_one(Method::Insert);
    scene.faults.fail(Method::Insert, 100, ErrorKind::Unavailable);
    let failure = scene.run(Way::Direct, line).await.unwrap_err();
    assert_eq!(failure.code, Code::Partly, "{failure}");
    assert_eq!(scene.count(State::Pending).await, 1_000);
    let failure = scene.run(Way::Direct, line).await.unwrap_err();
    assert_eq!(failure.code, Code::Unreachable, "nothing was done: {failure}");
}
