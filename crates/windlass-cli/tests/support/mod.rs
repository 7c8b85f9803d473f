//! The real binary as users run it: commands with their exit codes, servers with their ports, and
//! HTTP without a client of ours in between.

#![expect(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod scrape;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_windlass");

/// A folder of its own, in which commands run.
pub(crate) struct Place {
    folder: TempDir,
}

/// What a command came to.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The printed object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self}"))
    }

    /// The printed objects, one per line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self}"));
        self.out.lines().map(read).collect()
    }

    /// It ended with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {}\nout: {}\nerr: {}", self.code, self.out, self.err)
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder for the test") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path
    }

    /// The binary, in this folder, with nothing of the tester's own settings.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(BINARY);
        let is_ours = |name: &str| name.starts_with("WINDLASS_") || name.starts_with("OTEL_");
        let ours = std::env::vars().map(|(name, _)| name).filter(|name| is_ours(name));
        for name in ours.chain(["TRACEPARENT", "RUST_LOG"].map(String::from)) {
            command.env_remove(name);
        }
        command
            .current_dir(self.path())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command().args(arguments).output().expect("cargo has built the binary"))
    }

    /// Starts `windlass dev` on a free port and waits until it listens.
    pub(crate) fn dev(&self, arguments: &[&str]) -> Server {
        self.start("dev", arguments)
    }

    pub(crate) fn start(&self, command: &str, arguments: &[&str]) -> Server {
        self.start_with(self.command(), command, arguments)
    }

    /// The same with settings of its own in the environment.
    pub(crate) fn start_with(&self, process: Command, command: &str, arguments: &[&str]) -> Server {
        let port = if command == "worker" { "--metrics-port" } else { "--port" };
        let arguments = [&[port, "0"], arguments].concat();
        self.listening(process, command, &arguments)
    }

    /// Starts a server again at the address of one that has ended.
    pub(crate) fn restart(&self, ended: Server, command: &str) -> Server {
        let port = ended.url.rsplit(':').next().expect("a port").to_owned();
        drop(ended);
        self.listening(self.command(), command, &["--port", &port])
    }

    fn listening(&self, mut process: Command, command: &str, arguments: &[&str]) -> Server {
        let mut child = process
            .arg(command)
            .args(arguments)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cargo has built the binary");
        let mut log = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut told = String::new();
        let url = loop {
            let mut line = String::new();
            let read = log.read_line(&mut line).expect("its standard error is text");
            assert!(read > 0, "{command} ended before it listened: {:?}", child.wait());
            told.push_str(&line);
            if let Some(at) = line.find("http://").or_else(|| line.find("https://")) {
                let ends = |c: char| c.is_whitespace() || c == '"';
                let url = line[at..].split(ends).next().unwrap_or_default();
                break url.trim_end_matches("/metrics").to_owned();
            }
        };
        // Read on, or it would block on a full pipe.
        let mut log_text = told.clone();
        let log = std::thread::spawn(move || {
            let _ = log.read_to_string(&mut log_text);
            log_text
        });
        Server { child, url, told, log: Some(log) }
    }
}

/// Asks until something is so: another process tells nobody when it has come that far.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("results are text"),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A process that listens; killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// What it logged until it listened.
    pub(crate) told: String,
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// Ends it, and answers all that it logged.
    pub(crate) fn end(mut self) -> String {
        self.signal("-TERM");
        self.wait();
        let log = self.log.take().expect("a server ends once");
        log.join().expect("its log can be read")
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        self.signal_with(&[name]);
    }

    /// Sends signals by their names, one right behind the other.
    pub(crate) fn signal_with(&self, names: &[&str]) {
        let id = self.child.id();
        let kills: Vec<_> = names.iter().map(|name| format!("kill {name} {id}")).collect();
        let status = Command::new("sh").args(["-c", &kills.join(" && ")]).status();
        assert!(status.expect("sh is there").success());
    }

    /// Sends JSON and reads the answer, which must have this status.
    #[track_caller]
    pub(crate) fn send(&self, path: &str, body: &Value, status: u16) -> Value {
        let (code, answer) = self.post(path, &body.to_string());
        assert_eq!(code, status, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Submits a task and answers its id.
    #[track_caller]
    pub(crate) fn submit(&self, body: &Value) -> String {
        self.send("/api/v1/tasks", body, 201)["id"].as_str().expect("an id").to_owned()
    }

    /// A task as it stands.
    #[track_caller]
    pub(crate) fn task(&self, id: &str) -> Value {
        self.task_by(&format!("/api/v1/tasks/{id}"))
    }

    /// A task at its end, for which this waits up to a minute.
    #[track_caller]
    pub(crate) fn finished(&self, id: &str) -> Value {
        self.task_by(&format!("/api/v1/tasks/{id}?wait=60s"))
    }

    #[track_caller]
    fn task_by(&self, path: &str) -> Value {
        let (status, task) = self.get(path);
        assert_eq!(status, 200, "{task}");
        serde_json::from_str(&task).expect("JSON")
    }

    /// True when it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_some()
    }

    /// Waits for its end; answers its exit code, nothing when a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("it can be waited for").code()
    }

    /// Asks over HTTP; answers status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\n"), "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        let head = format!(
            "POST {path} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        self.ask(&head, body)
    }

    /// Sends a head without its end, and a body.
    pub(crate) fn ask(&self, head: &str, body: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = format!("{head}host: {address}\r\nconnection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers with text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        (status.expect("a status"), body)
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
