//! The handler is not async.
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet;

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

fn greet(_task: Greet, _cx: Context<()>) -> Outcome<String> {
    Ok("hello".into())
}

fn worker(client: Client) {
    let _ = client.worker().handle(greet);
}

fn main() {}
