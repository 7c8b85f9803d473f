//! The README's first minute, run as it is written.

mod support;

use std::path::Path;
use std::process::Command;

use support::{BINARY, Place, ran};

/// The shell block of the README that is marked as the tour.
fn tour() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).expect("there is a README");
    let (_, rest) = text.split_once("```sh tour\n").expect("the README has a tour");
    rest.split_once("```").expect("the block ends").0.to_owned()
}

#[test]
fn the_readme_s_tour_works_as_written() {
    let place = Place::new();
    let server = place.dev(&[]);
    // Another test, or the tester, may have the usual port.
    let script = tour().replace("http://127.0.0.1:8080", &server.url);
    let folder = Path::new(BINARY).parent().expect("it lies in a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-euxc", &script]).current_dir(place.path()).env("PATH", path);
    shell.env("XDG_CONFIG_HOME", place.path());
    let told = ran(shell.output().expect("there is a shell")).exits(0);
    assert!(told.out.contains(r#""result":{"hello":"world"}"#), "{told}");
    // What it submitted comes to the ends that it speaks of.
    let retried = ["enqueue", "fail", r#"{"times":1}"#, "--idempotency-key", "first-try"];
    let id = place.run(&retried).exits(0).json()["id"].as_str().expect("an id").to_owned();
    let task = place.run(&["task", "wait", &id]).exits(0).json();
    assert_eq!(task["attempts"], 2, "{task}");
}
