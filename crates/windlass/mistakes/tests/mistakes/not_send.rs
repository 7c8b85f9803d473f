//! The handler holds something across an await that cannot change threads.
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use windlass::prelude::*;

#[derive(Serialize, Deserialize)]
struct Greet;

impl Task for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

async fn greet(_task: Greet, cx: Context<()>) -> Outcome<String> {
    let name = Rc::new(String::from("hello"));
    cx.progress(0.5, &name).await;
    Ok(name.to_string())
}

fn worker(client: Client) {
    let _ = client.worker().handle(greet);
}

fn main() {}
