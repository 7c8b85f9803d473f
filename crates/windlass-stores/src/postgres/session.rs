//! One connection to the server: how it is set up, and the statements it has prepared.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Statement};
use windlass_core::{Error, ErrorKind, Reason, Result};

use super::error::{During, classify_code};
use super::options::{Pooler, PostgresOptions};
use super::pooled::Pooled;
use super::{between, sql, tls};

/// The values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Longest that making a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest that sent bytes may go unanswered by the server's machine, and how often it is then asked
/// for a sign of life.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(2);
const PROBES_MAX: u32 = 3;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Hot statements over small tables.
    Hot,
    /// Heartbeats: hot, and not worth a flush of the log each. After a crash of the server a worker's lease ends one
    /// heartbeat earlier at most, and the next renews it.
    Heartbeats,
    /// Transactions and reads.
    Plain,
    /// Telling and hearing news; loses nothing that matters.
    News,
}

impl Purpose {
    /// Longest that the server may take over one statement before the connection counts as hung. A
    /// machine in between that takes bytes and hands on none looks healthy from here.
    const fn answer_max(self) -> Duration {
        match self {
            // Less than a lease: a worker with a hung connection gets another before it is lost.
            Self::Hot | Self::Heartbeats | Self::News => Duration::from_secs(10),
            Self::Plain => Duration::from_secs(30),
        }
    }
}

pub(super) struct Session {
    pub(super) client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    answer_max: Duration,
    is_patient: AtomicBool,
    is_given_up: AtomicBool,
    driver: AbortHandle,
    /// Closed when the driver ends.
    driver_alive: watch::Receiver<()>,
    pooled: Option<Pooled>,
}

impl Session {
    /// Connects; `heard` is called with each notification.
    pub(super) async fn connect(
        options: &PostgresOptions,
        purpose: Purpose,
        heard: impl Fn(&str) + Send + 'static,
    ) -> Result<Self> {
        let name = "connect";
        let mut server = options.server.clone();
        server.tcp_user_timeout(SILENCE_MAX).keepalives_idle(SILENCE_MAX);
        server.keepalives_interval(PROBE_EVERY).keepalives_retries(PROBES_MAX);
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(CONNECT_MAX);
        }
        if server.get_application_name().is_none() {
            server.application_name("windlass");
        }
        let connecting = server.connect(tls::connector(&options.trust)?);
        let connected = tokio::time::timeout(CONNECT_MAX * 2, connecting).await;
        let (client, mut connection) = connected
            .map_err(|cause| {
                Error::new(ErrorKind::Unavailable, options.connecting()).because(cause)
            })?
            .map_err(|cause| refused(options, cause))?;
        let (alive, driver_alive) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _alive = alive;
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(note))) => heard(note.payload()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(error = %error, "a connection to postgres ended");
                        break;
                    }
                    None => break,
                }
            }
        });
        let settings = settings(options, purpose);
        let session = Self {
            client,
            statements: Mutex::default(),
            pooled: options.is_pooled().then(|| Pooled::new(&settings)),
            answer_max: purpose.answer_max(),
            is_patient: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            driver: driver.abort_handle(),
            driver_alive,
        };
        // Asked before anything is set: a pooler would give it to its other clients.
        if options.pooler == Pooler::None {
            let asked = session.client.simple_query(sql::PROCESS);
            let answer = session.answered(named(sql::PROCESS), asked).await?;
            let told = between::told_process(&session.client).await?;
            if between::answering_process(&answer) != Some(told) {
                return Err(between::unexpected_pooler());
            }
        }
        if session.pooled.is_none() {
            session.answered(name, session.client.batch_execute(&settings)).await?;
        }
        Ok(session)
    }

    /// Connects to a server that has let us in before. Whatever it has against us now may pass: a
    /// password that is being changed, a database that is being restored. What a caller wants of it
    /// is not wrong for that.
    pub(super) async fn reconnect(
        options: &PostgresOptions,
        purpose: Purpose,
        heard: impl Fn(&str) + Send + 'static,
    ) -> Result<Self> {
        let connected = Self::connect(options, purpose, heard).await;
        connected.map_err(|error| match error.kind() {
            ErrorKind::Invalid => {
                Error::new(ErrorKind::Unavailable, "connect to postgres again").because(error)
            }
            _ => error,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.is_given_up.load(Ordering::Relaxed)
    }

    /// Subscribes this connection to the notifications of a channel.
    pub(super) async fn listen(&self, channel: &str) -> Result<()> {
        let text = format!("LISTEN {channel}");
        self.answered("listen", self.client.batch_execute(&text)).await
    }

    /// Ends when the connection does.
    pub(super) async fn ended(&self) {
        let mut driver_alive = self.driver_alive.clone();
        while driver_alive.changed().await.is_ok() {}
    }

    /// Lets the server take as long as it likes, for what an operator waits for.
    pub(super) fn wait_patiently(&self, is_patient: bool) {
        self.is_patient.store(is_patient, Ordering::Relaxed);
    }

    /// Waits for an answer. Where none comes in time, or nobody waits for it any more, the connection
    /// is closed: the server is told nothing more on it, and whoever else waits on it hears so at once.
    async fn answered<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let mut awaited = Awaited { session: self, is_over: false };
        let answer = if self.is_patient.load(Ordering::Relaxed) {
            call.await
        } else {
            tokio::time::timeout(self.answer_max, call).await.map_err(|cause| {
                let text = format!("{name} in postgres: no answer in {:?}", self.answer_max);
                Error::new(ErrorKind::Unavailable, text).because(cause)
            })?
        };
        awaited.is_over = true;
        answer.during(name)
    }

    /// Sees to it that a statement can be sent without waiting for anything.
    pub(super) async fn prepare(&self, text: &'static str) -> Result<()> {
        match &self.pooled {
            Some(_) => Ok(()),
            None => self.statement(text).await.map(drop),
        }
    }

    /// A statement, prepared once per connection.
    async fn statement(&self, text: &'static str) -> Result<Statement> {
        if let Some(statement) = self.statements.lock().get(text) {
            return Ok(statement.clone());
        }
        let statement = self.answered(named(text), self.client.prepare(text)).await?;
        self.statements.lock().insert(text, statement.clone());
        Ok(statement)
    }

    /// Runs a statement and reads all of its rows.
    pub(super) async fn all(&self, text: &'static str, values: Values<'_>) -> Result<Vec<Row>> {
        match &self.pooled {
            Some(pooled) => {
                self.answered(named(text), pooled.all(&self.client, text, values)).await
            }
            None => {
                let statement = self.statement(text).await?;
                self.answered(named(text), self.client.query(&statement, values)).await
            }
        }
    }

    /// Runs a statement that returns at most one row.
    pub(super) async fn one(&self, text: &'static str, values: Values<'_>) -> Result<Option<Row>> {
        Ok(self.all(text, values).await?.into_iter().next())
    }

    /// Runs a statement that returns nothing; answers how many rows it changed.
    pub(super) async fn execute(&self, text: &'static str, values: Values<'_>) -> Result<u64> {
        match &self.pooled {
            Some(pooled) => {
                self.answered(named(text), pooled.execute(&self.client, text, values)).await
            }
            None => {
                let statement = self.statement(text).await?;
                self.answered(named(text), self.client.execute(&statement, values)).await
            }
        }
    }

    /// Begins, commits or rolls back.
    pub(super) async fn control(&self, step: &'static str) -> Result<()> {
        match &self.pooled {
            Some(pooled) => self.answered(step, pooled.control(&self.client, step)).await,
            None => self.answered(step, self.client.batch_execute(step)).await,
        }
    }
}

/// Closes a connection whose answer did not come.
struct Awaited<'s> {
    session: &'s Session,
    is_over: bool,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.session.is_given_up.store(true, Ordering::Relaxed);
            self.session.driver.abort();
        }
    }
}

/// A refusal to connect. A server that is not there yet may come; a wrong password will not mend.
fn refused(options: &PostgresOptions, cause: tokio_postgres::Error) -> Error {
    let (kind, reason) = match cause.code().map(|code| code.code()) {
        Some(code) if code.starts_with("28") => (ErrorKind::Invalid, Reason::Forbidden),
        Some("3D000") => (ErrorKind::Invalid, Reason::Unspecified),
        Some(code) => (ErrorKind::Unavailable, classify_code(code).1),
        None => (ErrorKind::Unavailable, Reason::Unspecified),
    };
    Error::new(kind, options.connecting()).reason_is(reason).because(cause)
}

/// What is set for a session, or for each transaction behind a pooler.
fn settings(options: &PostgresOptions, purpose: Purpose) -> String {
    let schema = options.schema.replace('"', "\"\"");
    let is_flushed = !matches!(purpose, Purpose::News | Purpose::Heartbeats);
    let commit = if options.is_durable && is_flushed { "on" } else { "off" };
    let mut text = format!(
        "SET search_path TO \"{schema}\"; SET synchronous_commit TO {commit}; SET jit TO off;
         SET idle_in_transaction_session_timeout TO '60s'; SET client_min_messages TO warning;
         SET default_transaction_isolation TO 'read committed';"
    );
    // Small tables look empty after each vacuum and new partitions are, and plans made then are bad
    // for hours: they read a whole table for a few rows.
    if purpose != Purpose::News {
        text.push_str(
            "SET enable_seqscan TO off; SET enable_hashjoin TO off; SET enable_mergejoin TO off;
             SET max_parallel_workers_per_gather TO 0;",
        );
    }
    if matches!(purpose, Purpose::Hot | Purpose::Heartbeats) {
        // A little more than the wait for an answer: whoever was given up ends by himself, too, or as
        // many would queue up behind a locked table as there were tries.
        let most = purpose.answer_max() + Duration::from_secs(2);
        text.push_str(&format!(
            "SET enable_bitmapscan TO off; SET plan_cache_mode TO force_generic_plan;
             SET statement_timeout TO '{}ms';",
            most.as_millis()
        ));
    }
    text
}

/// Names a statement by the first word of its comment.
fn named(text: &'static str) -> &'static str {
    let line = text.lines().next().unwrap_or_default().trim_start_matches("-- ");
    line.split(':').next().unwrap_or(line)
}
