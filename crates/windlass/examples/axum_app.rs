//! A worker inside a web application: requests submit tasks, the same process runs them, and both
//! stop gracefully together.
//!
//! `cargo run -p windlass --example axum_app`. So that the example ends by itself it sends itself
//! two requests and then does what a SIGTERM would do.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use windlass::TaskId;
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Resize {
    image: String,
}

impl Task for Resize {
    const KIND: &'static str = "image.resize";
    type Output = String;
}

async fn resize(task: Resize, _cx: Context<()>) -> Outcome<String> {
    Ok(format!("{}, but smaller", task.image))
}

type Failed = (StatusCode, String);

fn failed(error: windlass::Error) -> Failed {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Submits and answers at once: the task is durable by then.
async fn submit(
    State(client): State<Client>,
    Json(task): Json<Resize>,
) -> Result<(StatusCode, String), Failed> {
    let handle = client.enqueue(task).await.map_err(failed)?;
    Ok((StatusCode::ACCEPTED, handle.id().to_string()))
}

async fn look(State(client): State<Client>, Path(id): Path<String>) -> Result<String, Failed> {
    let task = client.get(&TaskId::new(id)).await.map_err(failed)?;
    let task = task.ok_or((StatusCode::NOT_FOUND, "no such task".into()))?;
    Ok(task.state.to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tasks.db");
    let client = windlass::connect(&format!("sqlite:{}", file.display())).await?;
    let worker = client.worker().handle(resize).concurrency(8).start().await?;

    let app = Router::new()
        .route("/images", post(submit))
        .route("/tasks/{id}", get(look))
        .with_state(client.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;

    // A real program awaits `tokio::signal::ctrl_c()` or SIGTERM instead of this.
    let (stop, mut stopped) = watch::channel(false);
    let serving = tokio::spawn(async move {
        let until = async move { drop(stopped.wait_for(|is_over| *is_over).await) };
        axum::serve(listener, app).with_graceful_shutdown(until).await
    });

    let accepted = request(address, "POST /images", r#"{"image":"a cat"}"#).await?;
    let id = TaskId::new(body(&accepted));
    println!("accepted: {id}");
    client.handle::<Resize>(id.clone()).wait().await?;
    let state = request(address, &format!("GET /tasks/{id}"), "").await?;
    println!("state: {}", body(&state));

    // First the requests, which submit; then the worker, which finishes what it runs. What is still
    // pending waits in the file for the next start.
    stop.send(true)?;
    serving.await??;
    worker.stop().await?;
    println!("stopped");
    Ok(())
}

/// The least that can be called an HTTP client.
async fn request(
    address: std::net::SocketAddr,
    line: &str,
    json: &str,
) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let length = json.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: example\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{json}"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or(answer, |(_, body)| body)
}
