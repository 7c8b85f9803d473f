//! The handler asks for a state, and the worker has none.
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet;

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

async fn greet(_task: Greet, cx: Context<String>) -> Outcome<String> {
    Ok(cx.state().clone())
}

fn worker(client: Client) {
    let _ = client.worker().handle(greet);
}

fn main() {}
