//! A private Redis: its own folder and port.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::watchdog::{Signal, watch};

/// Longest that the server may take to answer after its start.
const START_MAX: Duration = Duration::from_secs(30);

/// Where Debian keeps the program, should it not be on the PATH.
const DEBIAN: &str = "/usr/bin";

/// The folder of its files in its own.
const DATA: &str = "data";

/// What a server promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Waits for the disk before it answers.
    Always,
    /// Writes to the disk every second.
    EverySecond,
    /// Keeps nothing: a restart finds it empty.
    Nothing,
}

/// A server of the tests' own. One is shared by all tests of a process: each has a prefix of its own.
pub struct RedisServer {
    folder: PathBuf,
    port: u16,
    keeping: Keeping,
    extra: Vec<String>,
    running: Mutex<Option<Running>>,
}

/// The server, and who ends it when this process is gone.
struct Running {
    server: Child,
    /// Its input ends when this process does.
    watchdog: Child,
}

static SHARED: OnceLock<RedisServer> = OnceLock::new();
static PREFIXES: AtomicU32 = AtomicU32::new(0);

impl RedisServer {
    /// The server of this process, started when it is first asked for.
    pub fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::start(Keeping::Nothing))
    }

    /// Starts a server of its own.
    pub fn start(keeping: Keeping) -> Self {
        Self::start_with(keeping, &[])
    }

    /// Starts a server of its own with further settings, as on its command line.
    pub fn start_with(keeping: Keeping, extra: &[&str]) -> Self {
        Self::start_on(free_port(), keeping, extra)
    }

    /// Starts a server of its own that keeps everything in a new folder in this one.
    pub fn start_in(place: &Path, keeping: Keeping) -> Self {
        Self::make(place, free_port(), keeping, &[])
    }

    fn start_on(port: u16, keeping: Keeping, extra: &[&str]) -> Self {
        Self::make(&std::env::temp_dir(), port, keeping, extra)
    }

    fn make(place: &Path, port: u16, keeping: Keeping, extra: &[&str]) -> Self {
        let name = format!("windlass-redis-{}-{}", std::process::id(), fastrand::u32(..));
        let folder = place.join(name);
        fs::create_dir_all(folder.join(DATA)).unwrap();
        let server = Self {
            folder,
            port,
            keeping,
            extra: extra.iter().map(ToString::to_string).collect(),
            running: Mutex::new(None),
        };
        server.launch();
        server
    }

    /// The URL of this server, for keys under a prefix.
    pub fn url(&self, prefix: &str) -> String {
        self.url_through(self.port, prefix)
    }

    /// The same through a proxy on this port.
    pub fn url_through(&self, port: u16, prefix: &str) -> String {
        format!("redis://127.0.0.1:{port}/?prefix={prefix}")
    }

    /// A prefix that nobody in this process has used before.
    pub fn new_prefix() -> String {
        format!("test{}", PREFIXES.fetch_add(1, Ordering::Relaxed))
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same as a list, as a Cluster has it.
    pub fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.running.lock().as_ref().map(|running| running.server.id())
    }

    /// Kills the server, as a crash would.
    pub fn kill(&self) {
        let Some(mut running) = self.running.lock().take() else { return };
        running.server.kill().unwrap();
        running.server.wait().unwrap();
    }

    /// Starts the server again after a kill.
    pub fn launch(&self) {
        let program = program()
            .unwrap_or_else(|| panic!("no redis-server on the PATH: run `cargo xtask setup`"));
        let (append, fsync) = match self.keeping {
            Keeping::Always => ("yes", "always"),
            Keeping::EverySecond => ("yes", "everysec"),
            Keeping::Nothing => ("no", "no"),
        };
        let log = fs::File::create(self.folder.join("log")).unwrap();
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.join(DATA))
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", append, "--appendfsync", fsync])
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            // Ctrl-C in a terminal is for the tests; the watchdog ends the server after them.
            .process_group(0);
        let mut server = command.spawn().unwrap();
        let watchdog = watch(server.id(), Signal::Kill, &self.folder);
        let deadline = Instant::now() + START_MAX;
        while !self.is_ready() {
            let ended = server.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "redis-server did not start: {}",
                fs::read_to_string(self.folder.join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        *self.running.lock() = Some(Running { server, watchdog });
    }

    /// Copies what it has on the disk; nobody may write meanwhile.
    pub fn copy_data(&self) -> DataCopy {
        let copy = DataCopy(self.folder.join(format!("copy-{}", fastrand::u32(..))));
        copy_folder(&self.folder.join(DATA), &copy.0);
        copy
    }

    /// Puts an older copy in the place of what it has on the disk; for a server that was killed.
    pub fn restore_data(&self, copy: &DataCopy) {
        assert!(self.pid().is_none(), "the server should be down when its data are replaced");
        let data = self.folder.join(DATA);
        fs::remove_dir_all(&data).unwrap();
        copy_folder(&copy.0, &data);
    }

    /// Asks whether it answers; while it loads its data it says so instead.
    fn is_ready(&self) -> bool {
        self.operate(&["PING"]).is_ok_and(|answer| answer == "+PONG\r\n")
    }

    /// The same for what is done or goes wrong.
    pub fn order(&self, words: &[&str]) {
        assert_eq!(self.operate(words).unwrap(), "+OK\r\n", "{words:?}");
    }

    /// Does something to the server as its operator; answers how its reply begins, as it came.
    pub fn operate(&self, words: &[&str]) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(text.as_bytes())?;
        let mut answer = [0; 4_096];
        let count = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..count]).into_owned())
    }
}

/// What a server had on its disk at some time; gone with the server.
pub struct DataCopy(PathBuf);

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = entry.map(|it| (it.path(), to.join(it.file_name()))).unwrap();
        match path.is_dir() {
            true => copy_folder(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

/// A Cluster of three nodes of the tests' own.
pub struct RedisCluster {
    pub(super) nodes: Vec<RedisServer>,
}

static SHARED_CLUSTER: OnceLock<RedisCluster> = OnceLock::new();

impl RedisCluster {
    /// The Cluster of this process, started when it is first asked for.
    pub fn shared() -> &'static Self {
        SHARED_CLUSTER.get_or_init(Self::start)
    }

    /// Starts a Cluster of its own; it keeps nothing.
    pub fn start() -> Self {
        Self::start_nodes(NODES, Duration::from_secs(5))
    }

    /// Starts so many nodes, of which the first three share the slots; the others are empty.
    pub(super) fn start_nodes(count: u32, node_timeout: Duration) -> Self {
        let timeout = node_timeout.as_millis().to_string();
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", &timeout];
        let start = |_| RedisServer::start_on(free_node_port(), Keeping::Nothing, &settings);
        let nodes: Vec<_> = (0..count).map(start).collect();
        for (number, node) in (0..count).zip(&nodes) {
            if number < NODES {
                let slots = SLOTS * number / NODES..SLOTS * (number + 1) / NODES;
                let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
                let mut words = vec!["CLUSTER", "ADDSLOTS"];
                words.extend(slots.iter().map(String::as_str));
                node.order(&words);
            }
            node.order(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()]);
        }
        let known = format!("cluster_known_nodes:{count}\r\n");
        let is_whole = |node: &RedisServer| {
            let told = node.operate(&["CLUSTER", "INFO"]).unwrap_or_default();
            told.contains("cluster_state:ok") && told.contains(&known)
        };
        await_that("the Cluster comes together", || nodes.iter().all(is_whole));
        Self { nodes }
    }

    /// The URL of this Cluster, for keys under a prefix.
    pub fn url(&self, prefix: &str) -> String {
        let nodes: Vec<_> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+cluster://{}?prefix={prefix}", nodes.join(","))
    }

    /// The ports of its nodes on 127.0.0.1.
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(RedisServer::port).collect()
    }
}

/// Polls until a condition holds that no server reports by itself.
pub(super) fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + START_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {START_MAX:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) const NODES: u32 = 3;
const SLOTS: u32 = 16_384;

/// A port that is free, and so is the one for the bus of a Cluster, 10,000 above it.
fn free_node_port() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let port = || fastrand::u16(20_000..30_000);
    std::iter::repeat_with(port)
        .find(|port| is_free(*port) && is_free(*port + 10_000))
        .expect("there is always another try")
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The watchdog sees the end of its input and finds the server gone.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(DEBIAN)]);
    folders.map(|folder| folder.join("redis-server")).find(|program| program.exists())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
