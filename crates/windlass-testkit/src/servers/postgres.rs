//! A private PostgreSQL: its own data folder, socket and port.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_postgres::{Config, NoTls};

use super::watchdog::{Signal, watch};

/// Longest that the server may take to answer after its start.
const START_MAX: Duration = Duration::from_secs(60);

/// Where Debian keeps the programs that it does not put on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The user inside the database.
const USER: &str = "windlass";

const MAKE_DATABASE: &str = include_str!("../../sql/make_database.sql");

/// The database that is always there.
const FIRST: &str = "postgres";

/// Schemas in a database that is made for some of them. A function is looked for among all of its name, whatever their
/// schemas: with a thousand schemas in one database that was most of what a new connection did.
const SCHEMAS_TOGETHER: u32 = 30;

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Connections are cut, transactions rolled back, everything written.
    Fast,
    /// As in a crash: what follows is a recovery.
    Immediate,
}

/// What a server promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Waits for the disk, as a server in production does.
    Durable,
    /// Does not wait for the disk: for tests that cut no power.
    Careless,
}

/// A server of the tests' own. One is shared by all tests of a process: each has a schema of its own.
pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    care: Care,
    /// Beside those that all servers of tests have.
    settings: Vec<String>,
    running: Mutex<Option<Running>>,
    /// How many databases were made.
    databases: Mutex<u32>,
}

/// The server, and who ends it when this process is gone.
struct Running {
    server: Child,
    /// Its input ends when this process does.
    watchdog: Child,
}

static SHARED: OnceLock<PostgresServer> = OnceLock::new();
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

impl PostgresServer {
    /// The server of this process, started when it is first asked for.
    pub fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::start(Care::Careless))
    }

    /// Starts a server of its own.
    pub fn start(care: Care) -> Self {
        Self::start_in(&std::env::temp_dir(), care)
    }

    /// Starts a server of its own with further settings, each `name=value`.
    pub fn start_with(care: Care, settings: &[String]) -> Self {
        Self::make(&std::env::temp_dir(), care, settings)
    }

    /// Starts a server of its own that keeps everything in a new folder in this one.
    pub fn start_in(place: &Path, care: Care) -> Self {
        Self::make(place, care, &[])
    }

    fn make(place: &Path, care: Care, settings: &[String]) -> Self {
        let programs = programs().unwrap_or_else(|| {
            panic!("no initdb on the PATH or in {DEBIAN}: run `cargo xtask setup`")
        });
        let folder =
            place.join(format!("windlass-postgres-{}-{}", std::process::id(), fastrand::u32(..)));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        if let Some((user, group)) = other_user() {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let (running, databases) = (Mutex::new(None), Mutex::new(0));
        let (port, settings) = (free_port(), settings.to_vec());
        let server = Self { programs, folder, port, care, settings, running, databases };
        server.initialise();
        server.launch();
        server
    }

    /// The URL of a schema in this server, through its socket.
    pub fn url(&self, schema: &str) -> String {
        let (folder, port, database) = (self.folder.display(), self.port, database_of(schema));
        format!("postgres:///{database}?host={folder}&port={port}&user={USER}&schema={schema}")
    }

    /// The URL of a schema in this server, through TCP.
    pub fn tcp_url(&self, schema: &str) -> String {
        self.url_through(self.port, schema)
    }

    /// The URL of a schema in this server, through a proxy on this port.
    pub fn url_through(&self, port: u16, schema: &str) -> String {
        let database = database_of(schema);
        format!("postgres://{USER}@127.0.0.1:{port}/{database}?schema={schema}")
    }

    /// A name for a schema that nobody in this process has used before.
    pub fn new_schema() -> String {
        format!("test_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
    }

    /// The same, in a database that few others share: for the many.
    pub fn new_schema_apart(&self) -> String {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let database = number / SCHEMAS_TOGETHER;
        let mut made = self.databases.lock();
        while *made <= database {
            self.make_database(&format!("apart_{made}"));
            *made += 1;
        }
        format!("test_{number}_apart_{database}")
    }

    /// On a thread of its own: the caller may be inside of a runtime, and not its own master.
    fn make_database(&self, name: &str) {
        let mut config = Config::new();
        config.host_path(&self.folder).port(self.port).user(USER).dbname(FIRST);
        let text = MAKE_DATABASE.replace("{name}", name);
        let make = async move {
            let (client, connection) = config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&text).await.unwrap();
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime.block_on(make)).join().unwrap();
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Takes connections over TCP only when they speak TLS, and shows this certificate (both in PEM).
    /// Restarts the server.
    pub fn insist_on_tls(&self, certificate: &str, key: &str) {
        self.stop(Stop::Fast);
        let data = self.data();
        let settings = "ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\n";
        fs::write(data.join("postgresql.auto.conf"), settings).unwrap();
        let access = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
        fs::write(data.join("pg_hba.conf"), access).unwrap();
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((user, group)) = other_user() {
                chown(&path, Some(user), Some(group)).unwrap();
            }
        }
        self.launch();
    }

    /// Stops the server.
    pub fn stop(&self, how: Stop) {
        let Some(mut running) = self.running.lock().take() else { return };
        let signal = match how {
            Stop::Fast => "-INT",
            Stop::Immediate => "-QUIT",
        };
        let told = Command::new("kill").arg(signal).arg(running.server.id().to_string()).status();
        assert!(told.unwrap().success(), "the server should be there to be stopped");
        running.server.wait().unwrap();
    }

    /// Starts the server again after a stop.
    pub fn launch(&self) {
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(&self.folder)
            .args(["-p", &self.port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=500"])
            .args(["-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB"]);
        command.args(self.settings.iter().flat_map(|setting| ["-c", setting.as_str()]));
        if self.care == Care::Careless {
            command.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
        }
        let log = fs::File::create(self.folder.join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut server = command.spawn().unwrap();
        let watchdog = watch(server.id(), Signal::Quit, &self.folder);
        let deadline = Instant::now() + START_MAX;
        while !self.is_ready(server.id()) {
            let ended = server.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "postgres did not start: {}",
                fs::read_to_string(self.folder.join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.running.lock() = Some(Running { server, watchdog });
    }

    /// Whether this process says so, and not one before it that had no time to clear up.
    fn is_ready(&self, server: u32) -> bool {
        let state = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = state.lines();
        lines.next() == Some(&server.to_string())
            && lines.nth(6).is_some_and(|line| line.trim() == "ready")
    }

    fn initialise(&self) {
        let mut command = self.command("initdb");
        command
            .arg("-D")
            .arg(self.data())
            .args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"])
            .args(["--username", USER]);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "initdb failed: {told}");
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A program of the server, as a user that it accepts.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.folder).stdin(Stdio::null());
        // Ctrl-C in a terminal is for the tests; the watchdog ends the server after them.
        command.process_group(0);
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop(Stop::Immediate);
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

/// The database that a schema is in, by its name.
pub(super) fn database_of(schema: &str) -> &str {
    schema.find("apart_").map_or(FIRST, |at| &schema[at..])
}

/// The folder of the newest server's programs.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_all =
        |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    if let Some(folder) = std::env::split_paths(&path).find(has_all) {
        return Some(folder);
    }
    let mut versions: Vec<_> = fs::read_dir(DEBIAN)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(has_all)
        .collect();
    versions.sort();
    versions.pop()
}

/// Whom to be, if one is root: the server refuses to run as root.
pub(super) fn other_user() -> Option<(u32, u32)> {
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !is_root {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody"))
}

pub(super) fn free_port() -> u16 {
    let bound: io::Result<TcpListener> = TcpListener::bind("127.0.0.1:0");
    bound.unwrap().local_addr().unwrap().port()
}
