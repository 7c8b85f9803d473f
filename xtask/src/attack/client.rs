//! The plainest client of HTTP/1 there can be: a connection for each request.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Result;

/// How long an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Client {
    /// Submits a task, and answers the path of it.
    pub(crate) async fn submit(&self, task: &Value) -> Result<String> {
        let answer = self.post("/api/v1/tasks", &task.to_string()).await?;
        if answer.status != 201 {
            return Err(format!("{}: {}", answer.status, answer.body).into());
        }
        let task: Value = serde_json::from_str(&answer.body)?;
        let id = task["id"].as_str().ok_or("a task without an id")?;
        Ok(format!("/api/v1/tasks/{id}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.ask(&format!("GET {path}"), "127.0.0.1", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Result<Answer> {
        self.ask(&format!("POST {path}"), "127.0.0.1", body).await
    }

    /// Asks a host of this name for something, on a connection of its own.
    pub(crate) async fn ask(&self, line: &str, host: &str, body: &str) -> Result<Answer> {
        let text = format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let asked = async {
            let mut stream = self.connect().await?;
            // A server that has answered already may take no more of it.
            let _ = stream.write_all(text.as_bytes()).await;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await?;
            Ok::<_, std::io::Error>(bytes)
        };
        let bytes = timeout(ANSWER_TIME, asked).await??;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Answer { status: status.ok_or("no status")?, body: body.to_owned() })
    }

    pub(crate) async fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.address).await
    }
}
