//! A private Redis: its own folder and port.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest that the server may take to answer after its start.
const START_MAX: Duration = Duration::from_secs(30);

/// Where Debian keeps the program, should it not be on the PATH.
const DEBIAN: &str = "/usr/bin";

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
        let name = format!("windlass-redis-{}-{}", std::process::id(), fastrand::u32(..));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let server = Self {
            folder,
            port: free_port(),
            keeping,
            extra: extra.iter().map(ToString::to_string).collect(),
            running: Mutex::new(None),
        };
        server.launch();
        server
    }

    /// The URL of this server, for keys under a prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("redis://127.0.0.1:{}/?prefix={prefix}", self.port)
    }

    /// A prefix that nobody in this process has used before.
    pub fn new_prefix() -> String {
        format!("test{}", PREFIXES.fetch_add(1, Ordering::Relaxed))
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
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
            .current_dir(&self.folder)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", append, "--appendfsync", fsync])
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            // Ctrl-C in a terminal is for the tests; the watchdog ends the server after them.
            .process_group(0);
        let mut server = command.spawn().unwrap();
        let watchdog = watch(server.id(), &self.folder);
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

    /// Asks whether it answers; while it loads its data it says so instead.
    fn is_ready(&self) -> bool {
        let asked = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 7];
            stream.read_exact(&mut answer)?;
            Ok(&answer == b"+PONG\r\n")
        };
        asked().unwrap_or(false)
    }
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

/// Starts a process that ends the server and removes its folder when this process is gone, however it
/// ends.
fn watch(server: u32, folder: &Path) -> Child {
    let script = "read -r _; kill -0 \"$1\" 2>/dev/null || exit 0; \
                  kill -KILL \"$1\" 2>/dev/null; \
                  while kill -0 \"$1\" 2>/dev/null; do sleep 0.1; done; rm -rf \"$2\"";
    Command::new("sh")
        .args(["-c", script, "watchdog", &server.to_string()])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(DEBIAN)]);
    folders.map(|folder| folder.join("redis-server")).find(|program| program.exists())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
