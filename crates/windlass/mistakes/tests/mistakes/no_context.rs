//! The handler has no `Context`.
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet;

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

async fn greet(_task: Greet) -> Outcome<String> {
    Ok("hello".into())
}

fn worker(client: Client) {
    let _ = client.worker().handle(greet);
}

fn main() {}
