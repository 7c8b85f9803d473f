//! A web application on PostgreSQL in which a sign-up and its welcome task commit together, and in which
//! the row that the task writes and its completion do, too.
//!
//! `DATABASE_URL=postgres://… cargo run -p windlass --example postgres_signup --features sqlx-0_9`. It makes
//! the schemas `windlass` and `windlass_example_signup`, with two tables; what is there it leaves alone. So that it ends
//! by itself it sends itself requests.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass::prelude::*;
use windlass::sqlx::{self, PgPool};

#[derive(Serialize, Deserialize)]
struct Welcome {
    name: String,
}

impl Task for Welcome {
    const KIND: &'static str = "user.welcome";
    type Output = String;
}

#[derive(Clone)]
struct App {
    client: Client,
    database: PgPool,
}

fn failed(error: impl Error) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// The user and the task, or neither.
async fn sign_up(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<StatusCode, (StatusCode, String)> {
    let mut tx = app.database.begin().await.map_err(failed)?;
    let insert = sqlx::query(include_str!("signup/user.sql")).bind(&name);
    insert.execute(&mut *tx).await.map_err(failed)?;
    app.client.enqueue(Welcome { name: name.clone() }).within(&mut *tx).await.map_err(failed)?;
    if name.len() > 20 {
        // Rolled back, with its task: `tx` is dropped here.
        return Ok(StatusCode::UNPROCESSABLE_ENTITY);
    }
    tx.commit().await.map_err(failed)?;
    Ok(StatusCode::CREATED)
}

/// Writes its letter and is completed in one transaction: exactly once, whatever crashes when.
async fn welcome(task: Welcome, cx: Context<PgPool>) -> Outcome<String> {
    let mut tx = cx.state().begin().await?;
    let letter = format!("Welcome, {}!", task.name);
    let insert = sqlx::query(include_str!("signup/letter.sql")).bind(&letter);
    insert.execute(&mut *tx).await?;
    cx.complete_within(&mut *tx, &letter).await?;
    tx.commit().await?;
    Ok(letter)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(
        |_| "say which database to use: DATABASE_URL=postgres://USER:PASSWORD@HOST/DATABASE",
    )?;
    if url.contains("schema=") {
        return Err("sqlx refuses what only windlass knows: leave ?schema= away".into());
    }
    let database = PgPool::connect(&url).await?;
    sqlx::raw_sql(include_str!("signup/schema.sql")).execute(&database).await?;
    let before: i64 =
        sqlx::query_scalar(include_str!("signup/last_letter.sql")).fetch_one(&database).await?;
    let client = windlass::connect(&url).await?;
    let state = database.clone();
    let worker = client.worker().state(state).handle(welcome).concurrency(4).start().await?;

    let app = App { client, database: database.clone() };
    let router = Router::new().route("/sign-up/{name}", post(sign_up)).with_state(app);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });

    for name in ["ada", "a-name-that-is-far-too-long", "grace"] {
        println!("{name}: {}", request(address, &format!("POST /sign-up/{name}")).await?);
    }
    let letters = async || -> Result<Vec<String>, sqlx::Error> {
        let written = sqlx::query_scalar(include_str!("signup/letters.sql")).bind(before);
        written.fetch_all(&database).await
    };
    while letters().await?.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    worker.stop().await?;
    serving.abort();
    println!("letters: {}", letters().await?.join(" "));
    Ok(())
}

/// The least that can be called an HTTP client; answers the status.
async fn request(address: SocketAddr, line: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "{line} HTTP/1.1\r\nhost: example\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).unwrap_or("?").into())
}
