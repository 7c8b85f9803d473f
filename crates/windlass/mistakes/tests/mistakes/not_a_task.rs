//! The payload is not a task.
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet;

async fn greet(_task: Greet, _cx: Context<()>) -> Outcome<String> {
    Ok("hello".into())
}

fn worker(client: Client) {
    let _ = client.worker().handle(greet);
}

fn main() {}
