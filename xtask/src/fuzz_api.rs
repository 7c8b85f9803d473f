//! `cargo xtask fuzz-api`: schemathesis, a stranger that knows the served OpenAPI document and nothing else, against
//! the real binary on each sort of store.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::ground::{Ground, Store, address};
use crate::torture::guard::{self, Killed};
use crate::torture::processes::build_debug;
use crate::{Result, shell};

/// The version that this was written for; another may check other things.
const SCHEMATHESIS: &str = "schemathesis==4.*";
/// What must hold on every answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,negative_data_rejection,\
                      unsupported_method,missing_required_header";
/// Requests that wait do so for up to 60 s.
const ANSWER_SECONDS: &str = "75";
/// Fewer of those that wait, and none that do not end.
const SETTINGS: &str = "[[operations]]\n\
                        include-operation-id = [\"lease_tasks\", \"report_results\"]\n\
                        generation.max-examples = 5\n\
                        [[operations]]\n\
                        include-operation-id = [\"stream_events\", \"open_socket\"]\n\
                        enabled = false\n";

/// How hard to try.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// On which stores; on all of these if none is named.
    #[arg(long, value_enum)]
    store: Vec<Store>,
    /// Requests that are made up for each call.
    #[arg(long, default_value_t = 30)]
    examples: u32,
    /// Makes up the same requests again.
    #[arg(long)]
    seed: Option<u64>,
    /// Asks this program and builds none.
    #[arg(long)]
    binary: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result {
    let schemathesis = install()?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => build_debug()?,
    };
    let stores = match args.store.as_slice() {
        [] => Store::value_variants(),
        named => named,
    };
    let mut failed = Vec::new();
    for store in stores {
        let folder = tempfile::tempdir()?;
        let ground = Ground::lay(*store, folder.path());
        let is_fine = attack(&schemathesis, &binary, &ground, folder.path(), args)?;
        println!(
            "{}",
            json!({ "fuzz": "api", "store": format!("{store:?}").to_lowercase(), "ok": is_fine })
        );
        if !is_fine {
            failed.push(format!("{store:?}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("see above: {}", failed.join(", ")).into()) }
}

/// Serves a store and has it attacked, with a token that may do everything: among the calls is one that makes
/// tokens, and with the first of them every call needs one.
fn attack(
    schemathesis: &Path,
    binary: &Path,
    ground: &Ground,
    folder: &Path,
    args: &Args,
) -> Result<bool> {
    let (log, settings) = (folder.join("log"), folder.join("schemathesis.toml"));
    fs::write(&settings, SETTINGS)?;
    let words = ["token", "create", "--name", "fuzz", "--scope", "admin", "-o", "json"];
    let mut create = Command::new(binary);
    create.args(words).args(ground.words()).current_dir(folder);
    let made = shell::output(&mut create)?;
    let made: Value = serde_json::from_str(&made)?;
    let token = made["token"].as_str().ok_or("no token in the answer")?;
    let mut command = guard::tethered(&binary.to_string_lossy());
    command.args(["serve", "--port", "0"]).args(ground.words()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let _server = Killed(command.spawn()?);
    let url = address(&log)?;
    let mut attack = Command::new(schemathesis);
    attack
        .arg("--config-file")
        .arg(&settings)
        .args(["run", &format!("{url}/api/v1/openapi.json"), "--checks", CHECKS, "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--max-response-time", ANSWER_SECONDS, "--request-timeout", ANSWER_SECONDS])
        .args(["--max-examples", &args.examples.to_string(), "--continue-on-failure"])
        .current_dir(folder)
        .stdin(Stdio::null());
    if let Some(seed) = args.seed {
        attack.args(["--seed", &seed.to_string()]);
    }
    let is_fine = attack.status()?.success();
    // A fault that the server has noticed itself counts, too.
    let told = fs::read_to_string(&log)?;
    let faults: Vec<_> = told.lines().filter(|line| line.contains("ERROR")).collect();
    for fault in faults.iter().take(20) {
        println!("server: {fault}");
    }
    let mut last = Command::new(binary);
    last.args(["stats", "--server", &url]).env("WINDLASS_TOKEN", token).current_dir(folder);
    shell::output(&mut last)
        .map_err(|error| format!("in the end its token is refused: {error}"))?;
    Ok(is_fine && faults.is_empty())
}

/// Puts schemathesis into a virtual environment of its own under `target/`, unless it is there.
fn install() -> Result<PathBuf> {
    let folder = shell::repository_root().join("target/schemathesis");
    let program = folder.join("bin/schemathesis");
    if program.exists() {
        return Ok(program);
    }
    println!("installing {SCHEMATHESIS} into {}", folder.display());
    let by_hand = "as root: apt-get install python3-venv";
    shell::run(shell::program("python3")?.args(["-m", "venv", "--clear"]).arg(&folder))
        .map_err(|error| format!("{error}; {by_hand}"))?;
    shell::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", SCHEMATHESIS]))?;
    Ok(program)
}
