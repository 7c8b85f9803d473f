//! A schema with a store, and a table of the application's beside it.

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use windlass::Opening;
use windlass::core::store::{
    Beat, Claim, ClaimParams, Depth, Finding, Quota, Severity, WorkerCard,
};
use windlass::core::{QueueName, WorkerId};
use windlass::prelude::*;
use windlass::sqlx::{Connection as _, PgConnection};
use windlass::tokio_postgres::{self, AsyncMessage, Config, NoTls};
use windlass_testkit::{PostgresServer, RedisServer};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Ship(pub(crate) i64);

impl Task for Ship {
    const KIND: &'static str = "ship";
    type Output = i64;
}

pub(crate) async fn ship(task: Ship, _cx: Context<()>) -> Outcome<i64> {
    Ok(task.0)
}

pub(crate) struct Shop {
    pub(crate) client: Client,
    pub(crate) schema: String,
}

impl Shop {
    pub(crate) async fn open() -> Self {
        Self::open_with(Vec::new()).await
    }

    /// The same with a broker in front of the database.
    pub(crate) async fn open_behind_a_broker() -> Self {
        let broker = RedisServer::shared().url(&RedisServer::new_prefix());
        Self::open_with(vec![broker]).await
    }

    async fn open_with(brokers: Vec<String>) -> Self {
        let schema = PostgresServer::new_schema();
        let url = PostgresServer::shared().url(&schema);
        // So that its sessions can be told from those of other tests.
        let url = format!("{url}&application_name={schema}");
        let opening = Opening { brokers, ..Opening::default() };
        let client = Client::new(windlass::open_as(&url, opening).await.unwrap());
        let shop = Self { client, schema };
        let text = format!("CREATE TABLE public.shipped_{} (item int8)", shop.schema);
        shop.connect().await.batch_execute(&text).await.unwrap();
        shop
    }

    fn config(&self) -> Config {
        let url = PostgresServer::shared().url("none");
        let mut config: Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
        config.application_name(&self.schema);
        config
    }

    /// A connection that knows nothing of the schema.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        self.connect_to("postgres").await
    }

    pub(crate) async fn connect_to(&self, database: &str) -> tokio_postgres::Client {
        let (client, connection) = self.config().dbname(database).connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub(crate) async fn connect_sqlx(&self) -> PgConnection {
        let url = PostgresServer::shared().tcp_url("none");
        PgConnection::connect(url.split_once('?').unwrap().0).await.unwrap()
    }

    /// How often each item was shipped.
    pub(crate) async fn shipped(&self) -> Vec<(i64, i64)> {
        let text = format!(
            "SELECT item, count(*) FROM public.shipped_{} GROUP BY 1 ORDER BY 1",
            self.schema
        );
        let rows = self.connect().await.query(&text, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Hears what workers are told.
    pub(crate) async fn listen(&self) -> mpsc::UnboundedReceiver<String> {
        let (client, mut connection) = self.config().connect(NoTls).await.unwrap();
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let Ok(AsyncMessage::Notification(note)) = message {
                    let _ = tell.send(note.payload().to_owned());
                }
            }
        });
        let text = format!("LISTEN {}", self.channel().await);
        client.batch_execute(&text).await.unwrap();
        // Its connection lives as long as the process.
        std::mem::forget(client);
        heard
    }

    pub(crate) async fn tell(&self, text: &str) {
        let channel = self.channel().await;
        let connection = self.connect().await;
        connection.execute("SELECT pg_notify($1, $2)", &[&channel, &text]).await.unwrap();
    }

    async fn channel(&self) -> String {
        let connection = self.connect().await;
        connection.batch_execute(&format!("SET search_path TO {}", self.schema)).await.unwrap();
        let text = "SELECT 'windlass_' || lpad(to_hex(salt()), 16, '0')";
        connection.query_one(text, &[]).await.unwrap().get(0)
    }

    /// Claims as a worker of that name.
    pub(crate) async fn claim(&self, worker: &str, limit: usize) -> Claim {
        let worker = WorkerId::new(worker);
        let beat = Beat {
            worker: worker.clone(),
            card: WorkerCard::default(),
            lease: PATIENCE,
            held: None,
            progress: Vec::new(),
        };
        self.client.store().beat(beat).await.unwrap();
        let quotas = vec![Quota::of(QueueName::new("default").unwrap(), limit)];
        let params = ClaimParams { worker, quotas, limit, suspects_at_most: 1 };
        self.client.store().claim(params).await.unwrap()
    }

    /// Counters, keys and places agree with the tasks.
    pub(crate) async fn check_books(&self) {
        let inspection = self.client.store().inspect(Depth::Full).await.unwrap();
        let is_ours = |finding: &&Finding| matches!(finding.subject, "counters" | "places");
        let wrong: Vec<_> = inspection.findings.iter().filter(is_ours).collect();
        assert!(wrong.iter().all(|finding| finding.severity == Severity::Info), "{wrong:?}");
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}
