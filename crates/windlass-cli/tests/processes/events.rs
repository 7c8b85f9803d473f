//! Live events of processes that end right after they have done something.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::support::{Place, Server};
use super::worker;

/// How long an event may take that surely comes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream of events, from now on.
struct Heard(BufReader<TcpStream>);

impl Heard {
    fn open(server: &Server, query: &str) -> Self {
        let address = server.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = format!("GET /api/v1/events?{query} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut heard = Self(BufReader::new(stream));
        // It says where it begins as soon as nothing is missed any more.
        heard.line("id: ");
        heard
    }

    fn line(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("text") > 0, "it ended");
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    fn kind(&mut self) -> String {
        let event: Value = serde_json::from_str(&self.line("data: ")).expect("JSON");
        event["type"].as_str().expect("a name").to_owned()
    }
}

#[test]
fn what_a_command_did_is_told_though_it_has_ended() {
    let place = Place::new();
    let server = place.start("serve", &[]);
    let wanted = "subscribe=task.*,worker.*,queue.paused,queue.resumed";
    let mut heard = Heard::open(&server, wanted);
    for round in 0..3 {
        place.run(&["queue", "pause", "mail", "--create"]).exits(0);
        place.run(&["queue", "resume", "mail"]).exits(0);
        let submit = ["enqueue", "echo", "1", "--queue", "mail", "-o", "json"];
        let task = place.run(&submit).exits(0).json();
        let id = task["id"].as_str().expect("an id");
        place.run(&["task", "cancel", id]).exits(0);
        for kind in ["queue.paused", "queue.resumed", "task.submitted", "task.cancelled"] {
            assert_eq!(heard.kind(), kind, "round {round}");
        }
    }
    let mut child = worker(&place, &["--queue", "idle"]);
    assert_eq!(heard.kind(), "worker.joined");
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-TERM", &pid]).status();
    assert!(killed.expect("there is a kill").success());
    assert!(child.wait().expect("it ends").success());
    assert_eq!(heard.kind(), "worker.left");
}
