//! The handler returns something else than its task declares.
use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet;

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

async fn greet(_task: Greet, _cx: Context<()>) -> Outcome<u32> {
    Ok(7)
}

fn worker(client: Client) {
    let _ = client.worker().handle(greet);
}

fn main() {}
