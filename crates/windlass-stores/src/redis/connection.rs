//! Connections: one that all calls of a handle share, and others for those that wait.
//!
//! Calls of one connection are sent one behind the other without waiting for answers. A connection
//! that broke, or from which an answer did not come in time, is never used again: the next call makes
//! a new one, in the runtime of that caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    RedisResult, TlsCertificates, Value,
};
use windlass_core::{Result, Timestamp};

use super::error::{classify, is_connection_spent, is_refused, is_script_missing, strange};
use super::options::{RedisOptions, Servers};
use super::script::{Call, Script};

const READ_CLOCK: &str = "read the clock";

/// Longest that making a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Longest that a command is repeated that no node of a Cluster takes, since its slot moves or its master is
/// being replaced: longer than a slot with few keys takes to move.
const REFUSED_MAX: Duration = Duration::from_secs(3);
/// The same for one behind which others wait.
const REFUSED_MAX_BRIEF: Duration = Duration::from_millis(200);
/// Time between two tries.
const REFUSED_PAUSE_MIN: Duration = Duration::from_millis(2);
const REFUSED_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A connection that is made when it is first needed, and made anew when it broke.
pub(crate) struct Link {
    options: Arc<RedisOptions>,
    made: Mutex<Option<Made>>,
    /// One connects, the others wait for it.
    connecting: tokio::sync::Mutex<u64>,
}

/// A connection that was made.
#[derive(Clone)]
struct Made {
    number: u64,
    wire: Wire,
    since: Option<Timestamp>,
}

/// One connection, as long as it lasts: what is sent over it never reaches a later run of the server.
pub(crate) struct Line<'a> {
    link: &'a Link,
    made: Made,
}

#[derive(Clone)]
enum Wire {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Wire {
    async fn send(&mut self, command: &Cmd, refused_max: Duration) -> RedisResult<Value> {
        match self {
            Self::Single(connection) => {
                // The server's own errors come as values.
                connection.req_packed_command(command).await.and_then(Value::extract_error)
            }
            Self::Cluster(connection) => send_to_cluster(connection, command, refused_max).await,
        }
    }
}

/// Sends a command to a Cluster until a node takes it, or for so long.
///
/// The driver may not repeat anything: it also repeats what may have been done, and a claim that is done twice
/// leaves tasks with a worker that does not know of them. What a node refuses was not done. While a slot is
/// open, nothing of its queue can be done on either node, so that nobody asks the other one (`ASKING`).
async fn send_to_cluster(
    connection: &mut ClusterConnection,
    command: &Cmd,
    refused_max: Duration,
) -> RedisResult<Value> {
    let (started, mut pause) = (Instant::now(), REFUSED_PAUSE_MIN);
    loop {
        let answer = connection.req_packed_command(command).await.and_then(Value::extract_error);
        let is_over = started.elapsed() + pause > refused_max;
        if is_over || !answer.as_ref().is_err_and(is_refused) {
            return answer;
        }
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        pause = (pause * 2).min(REFUSED_PAUSE_MAX);
    }
}

impl Link {
    pub(crate) fn new(options: Arc<RedisOptions>) -> Self {
        Self { options, made: Mutex::new(None), connecting: tokio::sync::Mutex::new(0) }
    }

    /// Calls a script.
    pub(crate) async fn call(&self, call: Call) -> Result<Value> {
        self.line().await?.call(call).await
    }

    /// Sends a plain command.
    pub(crate) async fn command(&self, operation: &str, command: &Cmd) -> Result<Value> {
        self.line().await?.send(operation, command, None, REFUSED_MAX).await
    }

    /// What time it is by the server's clock, or the one that a test has set.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        if let Some(clock) = &self.options.clock {
            return Ok(clock.now());
        }
        read_time(self.command(READ_CLOCK, &redis::cmd("TIME")).await?)
    }

    /// The connection that there is, or a new one.
    pub(crate) async fn line(&self) -> Result<Line<'_>> {
        if let Some(made) = self.made.lock().clone() {
            return Ok(Line { link: self, made });
        }
        let mut count = self.connecting.lock().await;
        if let Some(made) = self.made.lock().clone() {
            return Ok(Line { link: self, made });
        }
        *count += 1;
        let mut wire = connect(&self.options, self.options.answer_max)
            .await
            .map_err(|cause| classify(&self.options.connecting(), cause))?;
        let since = match (&self.options.clock, &wire) {
            (_, Wire::Cluster(_)) => None,
            (Some(clock), Wire::Single(_)) => Some(clock.now()),
            (None, Wire::Single(_)) => {
                let told = wire.send(&redis::cmd("TIME"), REFUSED_MAX).await;
                Some(read_time(told.map_err(|cause| classify(READ_CLOCK, cause))?)?)
            }
        };
        let made = Made { number: *count, wire, since };
        *self.made.lock() = Some(made.clone());
        Ok(Line { link: self, made })
    }

    /// The number of the connection that there is; 0 while there is none.
    pub(crate) fn connection_number(&self) -> u64 {
        self.made.lock().as_ref().map_or(0, |made| made.number)
    }

    fn drop_made(&self, number: u64) {
        let mut made = self.made.lock();
        if made.as_ref().is_some_and(|made| made.number == number) {
            *made = None;
        }
    }
}

impl Line<'_> {
    /// Whether the server is the same as at that time: it was not restarted since. Nobody can tell on a
    /// Cluster, whose driver connects to nodes anew unseen.
    pub(crate) fn lasts_since(&self, time: Timestamp) -> bool {
        self.made.since.is_some_and(|since| since <= time)
    }

    /// Calls a script.
    pub(crate) async fn call(&mut self, call: Call) -> Result<Value> {
        let Call { script, command, is_brief } = call;
        let refused_max = if is_brief { REFUSED_MAX_BRIEF } else { REFUSED_MAX };
        self.send(script.name, &command, Some(script), refused_max).await
    }

    async fn send(
        &mut self,
        operation: &str,
        command: &Cmd,
        script: Option<&Script>,
        refused_max: Duration,
    ) -> Result<Value> {
        let wire = &mut self.made.wire;
        let mut answer = wire.send(command, refused_max).await;
        // The server was restarted, or someone has flushed its scripts.
        if let (Err(cause), Some(script)) = (&answer, script)
            && is_script_missing(cause)
        {
            answer = wire.send(&script.in_full(command), refused_max).await;
        }
        answer.map_err(|cause| {
            if is_connection_spent(&cause) {
                self.link.drop_made(self.made.number);
            }
            classify(operation, cause)
        })
    }
}

fn read_time(told: Value) -> Result<Timestamp> {
    let told = match told {
        // A Cluster may answer by node.
        Value::Map(mut nodes) if !nodes.is_empty() => nodes.swap_remove(0).1,
        other => other,
    };
    let (seconds, micros) =
        <(i64, i64)>::from_redis_value(told).map_err(|_| strange(READ_CLOCK))?;
    Ok(Timestamp::from_millis(seconds * 1_000 + micros / 1_000))
}

async fn connect(options: &RedisOptions, answer_max: Duration) -> RedisResult<Wire> {
    match &options.servers {
        Servers::Single(server) => {
            let client = client(options, (**server).clone())?;
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT_MAX))
                .set_response_timeout(Some(answer_max));
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            Ok(Wire::Single(connection))
        }
        Servers::Cluster(nodes) => {
            provide_crypto();
            let mut builder = ClusterClient::builder(nodes.clone())
                .tcp_settings(settings())
                .connection_timeout(CONNECT_MAX)
                .response_timeout(answer_max)
                .retries(0);
            if options.authorities.is_some() {
                builder = builder.certs(certificates(options)?);
            }
            let client = builder.build()?;
            Ok(Wire::Cluster(client.get_async_connection().await?))
        }
    }
}

/// A client of one server, which checks the server's certificate where it speaks TLS.
fn client(options: &RedisOptions, server: ConnectionInfo) -> RedisResult<Client> {
    let server = server.set_tcp_settings(settings());
    if matches!(server.addr(), ConnectionAddr::TcpTls { .. }) {
        provide_crypto();
        return Client::build_with_tls(server, certificates(options)?);
    }
    Client::open(server)
}

fn certificates(options: &RedisOptions) -> RedisResult<TlsCertificates> {
    let root_cert = options.authorities.as_ref().map(std::fs::read).transpose()?;
    Ok(TlsCertificates { client_tls: None, root_cert })
}

/// The driver panics when the process has not chosen a provider of cryptography.
fn provide_crypto() {
    // If another part of the process has chosen one, that one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Small writes are sent at once: the driver leaves Nagle's algorithm on.
fn settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// A connection for one that waits at the server: nobody else is held up by it.
pub(crate) struct Blocking(Wire);

impl Blocking {
    /// Connects; an answer may take as long as the caller says.
    pub(crate) async fn connect(options: &RedisOptions, answer_max: Duration) -> Result<Self> {
        let wire = connect(options, answer_max).await;
        wire.map(Self).map_err(|cause| classify(&options.connecting(), cause))
    }

    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.0.send(command, REFUSED_MAX).await
    }

    /// Sends two commands at once: the server does the second as soon as the first does not wait any more.
    pub(crate) async fn send_both(
        &mut self,
        first: &Cmd,
        second: &Cmd,
    ) -> (RedisResult<Value>, RedisResult<Value>) {
        let mut same = self.0.clone();
        tokio::join!(biased; self.0.send(first, REFUSED_MAX), same.send(second, REFUSED_MAX))
    }
}

/// A client to hear what is published: any node of a Cluster tells all of it.
pub(crate) fn subscriber(options: &RedisOptions) -> RedisResult<Client> {
    let server = match &options.servers {
        Servers::Single(server) => Some((**server).clone()),
        Servers::Cluster(nodes) => fastrand::choice(nodes).cloned(),
    };
    let server =
        server.ok_or((redis::ErrorKind::InvalidClientConfig, "a Cluster without nodes"))?;
    client(options, server)
}
