//! A private PgBouncer in front of a private PostgreSQL.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::PostgresServer;
use super::postgres::{database_of, free_port, other_user};
use super::watchdog::{Signal, watch};

/// Longest that it may take to answer after its start.
const START_MAX: Duration = Duration::from_secs(30);

/// Where Debian keeps it, which is not on everybody's PATH.
const DEBIAN: &str = "/usr/sbin";

/// A pooler of the tests' own; gone with the process that started it.
pub struct PgBouncer {
    port: u16,
    mode: &'static str,
    _running: Child,
    _watchdog: Child,
}

static SHARED: OnceLock<PgBouncer> = OnceLock::new();

impl PgBouncer {
    /// The pooler of this process, in front of its shared server.
    pub fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::start(PostgresServer::shared()))
    }

    /// Starts a pooler in front of a server that gives a connection for one transaction at a time.
    pub fn start(server: &PostgresServer) -> Self {
        Self::start_in("transaction", server)
    }

    /// Starts a pooler in front of a server that gives each client a connection for as long as it stays.
    pub fn start_in_session_mode(server: &PostgresServer) -> Self {
        Self::start_in("session", server)
    }

    fn start_in(mode: &'static str, server: &PostgresServer) -> Self {
        let program = program().unwrap_or_else(|| {
            panic!("no pgbouncer on the PATH or in {DEBIAN}: run `cargo xtask setup`")
        });
        let name = format!("windlass-pgbouncer-{}-{}", std::process::id(), fastrand::u32(..));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        let (settings, log) = (folder.join("pgbouncer.ini"), folder.join("log"));
        // Few connections to the server, so that sessions do change hands.
        // A connection that has seen the schemas of many tests is slow: the server remembers them all.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=windlass\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = {mode}\nmax_client_conn = 2000\n\
             default_pool_size = 40\nserver_lifetime = 2\nserver_idle_timeout = 2\nlogfile = {}\n",
            server.port(),
            log.display()
        );
        fs::write(&settings, text).unwrap();
        if let Some((user, group)) = other_user() {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let mut command = Command::new(program);
        command.arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0);
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        let mut running = command.spawn().unwrap();
        let watchdog = watch(running.id(), Signal::Terminate, &folder);
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let is_gone = running.try_wait().unwrap().is_some();
            assert!(!is_gone && Instant::now() < deadline, "pgbouncer: {}", read(&log));
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { port, mode, _running: running, _watchdog: watchdog }
    }

    /// The URL of a schema, through the pooler.
    pub fn url(&self, schema: &str) -> String {
        let Self { port, mode, .. } = self;
        let database = database_of(schema);
        format!("postgres://windlass@127.0.0.1:{port}/{database}?pooler={mode}&schema={schema}")
    }
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    if let Ok(mut file) = fs::File::open(path) {
        let _ = file.read_to_string(&mut text);
    }
    text
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(DEBIAN)]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.exists())
}
