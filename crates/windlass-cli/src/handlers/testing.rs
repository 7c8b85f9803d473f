//! A real worker on a store in memory, and what its runs came to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use windlass::core::Store;
use windlass::core::config::Config;
use windlass::{Client, Configure, Ending, Options, TaskId, Worker, WorkerBuilder};

/// After so much time a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker at work, and a client beside it.
pub(super) struct Scene {
    pub(super) client: Client,
    worker: Option<Worker>,
    starts: mpsc::UnboundedReceiver<()>,
    endings: mpsc::UnboundedReceiver<Ending>,
}

impl Scene {
    /// A worker with the handlers of the binary.
    pub(super) async fn start(exec: Option<&str>) -> Self {
        let exec =
            exec.map(|command| super::Exec { command: command.into(), variables: Vec::new() });
        let webhook = super::Webhook::new(&Config::default().webhook).unwrap();
        let untyped = super::Untyped::Completed;
        Self::start_with("", |builder| super::register(builder, exec, webhook, untyped)).await
    }

    /// A worker with these settings, in TOML over the defaults, and these handlers.
    pub(super) async fn start_with(
        settings: &str,
        handlers: impl FnOnce(WorkerBuilder<()>) -> WorkerBuilder<()>,
    ) -> Self {
        Self::start_on(windlass::open("memory:").await.unwrap(), settings, handlers).await
    }

    /// The same on this store.
    pub(super) async fn start_on(
        store: Arc<dyn Store>,
        settings: &str,
        handlers: impl FnOnce(WorkerBuilder<()>) -> WorkerBuilder<()>,
    ) -> Self {
        let client = Client::with_config(store, Config::parse(settings).unwrap());
        let (start, starts) = mpsc::unbounded_channel();
        let (end, endings) = mpsc::unbounded_channel();
        let worker = handlers(client.worker())
            .concurrency(4)
            .before(move |_| _ = start.send(()))
            .after(move |_, ending| _ = end.send(ending.clone()))
            .start();
        Self { worker: Some(worker.await.unwrap()), client, starts, endings }
    }

    pub(super) async fn submit(&self, kind: &str, payload: &[u8], options: Options) -> TaskId {
        let payload = Bytes::copy_from_slice(payload);
        self.client.enqueue_raw(kind, payload, options).await.unwrap().0
    }

    /// Submits a task that is not retried, and waits for the end of its run.
    pub(super) async fn run(&mut self, kind: &str, payload: &[u8]) -> Ending {
        self.submit(kind, payload, Options::new().max_retries(0)).await;
        self.ended().await
    }

    /// The next run that starts.
    pub(super) async fn started(&mut self) {
        patiently(self.starts.recv()).await.unwrap();
    }

    /// What the next run that ends has come to.
    pub(super) async fn ended(&mut self) -> Ending {
        patiently(self.endings.recv()).await.unwrap()
    }

    /// Stops the worker.
    pub(super) async fn end(&mut self) {
        patiently(self.worker.take().unwrap().stop()).await.unwrap();
    }
}

/// Waits, but not for ever.
pub(super) async fn patiently<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it should have happened by now")
}

#[track_caller]
pub(super) fn check_failed(ending: &Ending, text: &str) {
    assert_eq!(*ending, Ending::Failed { error: text.into(), retry_after: None });
}
