//! What the documentation has people type, run as it is written: the README's first minute, the guide to the API.

mod support;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
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

/// A command of the guide, and what stands below it.
struct Step {
    command: String,
    status: Option<u16>,
    /// Names, and where in the answer their values are.
    takes: Vec<(String, String)>,
}

/// Every command of a page's shell blocks, in order.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_open = false;
    for block in page.split("```sh\n").skip(1) {
        let block = block.split_once("```").expect("the block ends").0;
        for line in block.lines() {
            if let Some(said) = line.strip_prefix("# ") {
                let step = steps.last_mut().expect("a command before what it answers");
                let mut parts = said.split("; ");
                step.status = parts.next().and_then(|status| status.parse().ok());
                assert!(step.status.is_some(), "no status: {line}");
                for part in parts {
                    let (name, place) = part.split_once(" is its ").expect("$NAME is its `place`");
                    let place = place.trim_matches('`').to_owned();
                    step.takes.push((name.trim_start_matches('$').to_owned(), place));
                }
            } else if is_open {
                let step = steps.last_mut().expect("the line before");
                step.command = format!("{}\n{line}", step.command);
            } else {
                steps.push(Step { command: line.into(), status: None, takes: Vec::new() });
            }
            is_open = line.ends_with('\\');
        }
    }
    steps
}

/// A value of an answer, by a path such as `tasks.0.id`.
fn value_at(json: &Value, place: &str) -> String {
    let pointer = format!("/{}", place.replace('.', "/"));
    let found = json.pointer(&pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no {place} in {json}")).to_owned()
}

/// True for a path that a description with names in braces means.
fn is_meant(template: &str, path: &str) -> bool {
    let (wanted, given): (Vec<_>, Vec<_>) =
        (template.split('/').collect(), path.split('/').collect());
    wanted.len() == given.len()
        && wanted.iter().zip(&given).all(|(one, other)| one == other || one.starts_with('{'))
}

#[test]
fn the_guide_to_the_api_works_as_written_and_leaves_no_call_out() {
    let place = Place::new();
    let server = place.start("serve", &[]);
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http-api.md");
    let guide = std::fs::read_to_string(guide).expect("there is a guide");
    let mut known: HashMap<String, String> = HashMap::new();
    let mut asked = BTreeSet::new();
    for step in steps(&guide) {
        let command = step.command.replace("http://127.0.0.1:8080", &server.url);
        if let Some((name, value)) = command.split_once('=').filter(|_| step.status.is_none()) {
            known.insert(name.into(), value.into());
            continue;
        }
        // Each request also tells what it was and what came of it.
        let script = format!(
            "curl() {{ command curl -w '\\n%{{http_code}} %{{method}} %{{url_effective}}' \"$@\"; }}\n{command}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-euc", &script]).envs(&known).current_dir(place.path());
        let told = ran(shell.output().expect("there is a shell")).exits(0);
        let (answer, facts) = told.out.rsplit_once('\n').expect("what came of it");
        let facts: Vec<_> = facts.split(' ').collect();
        let status = facts[0].parse().ok();
        assert_eq!(status, step.status, "{command}: {answer}");
        let path = facts[2].trim_start_matches(&server.url).split('?').next().unwrap_or_default();
        asked.insert((facts[1].to_owned(), path.to_owned()));
        for (name, place) in step.takes {
            let json = serde_json::from_str(answer).expect("the answer is JSON");
            known.insert(name, value_at(&json, &place));
        }
    }
    let (_, document) = server.get("/api/v1/openapi.json");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    for (template, calls) in paths {
        for method in calls.as_object().expect("methods").keys() {
            let is_it = |(verb, path): &(String, String)| {
                // What is written out as a path of its own is not meant by another with a name in braces.
                let is_own = template == path || !paths.contains_key(path);
                verb.eq_ignore_ascii_case(method) && is_own && is_meant(template, path)
            };
            assert!(asked.iter().any(is_it), "the guide has no {method} {template}");
        }
    }
}
