//! Settings: flag over environment over file over user's file over default, and nothing secret shown.

mod support;

use serde_json::{Value, json};
use support::{Place, ran};

#[track_caller]
fn check(shown: &Value, name: &str, value: &str, from: &str) {
    let (found, origin) = (&shown[name]["value"], shown[name]["from"].as_str());
    let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    assert_eq!((found.as_str(), origin), (value, Some(from)), "{name}");
}

#[test]
fn every_value_tells_where_it_comes_from() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().join("config/windlass")).expect("a folder");
    place.file("config/windlass/windlass.toml", "[task]\nmax_retries = 7\nmax_crashes = 7");
    place.file("windlass.toml", "[task]\nmax_retries = 8\n[server]\nport = 9000\nbind = \"::1\"");
    let mut command = place.command();
    command.args(["config", "show", "--store", "sqlite:other.db"]);
    command.env("WINDLASS_SERVER_PORT", "9001").env("WINDLASS_STORE", "sqlite:not-this.db");
    let shown = ran(command.output().expect("it runs")).exits(0).json();
    check(&shown, "store", "sqlite:other.db", "flag --store");
    check(&shown, "server.port", "9001", "environment WINDLASS_SERVER_PORT");
    check(&shown, "server.bind", "::1", "windlass.toml");
    check(&shown, "task.max_retries", "8", "windlass.toml");
    check(&shown, "worker.lease", "15s", "default");
    let user = place.path().join("config/windlass/windlass.toml");
    check(&shown, "task.max_crashes", "7", &user.display().to_string());
}

#[test]
fn a_mistake_in_a_file_or_variable_is_told_with_its_place() {
    let place = Place::new();
    place.file("bad.toml", "[worker]\nleese = \"1s\"");
    let told = place.run(&["config", "show", "--config", "bad.toml"]).exits(2);
    assert!(told.err.contains("bad.toml") && told.err.contains("leese"), "{told}");
    place.run(&["config", "show", "--config", "missing.toml"]).exits(2);
    let mut command = place.command();
    command.args(["config", "show"]).env("WINDLASS_WORKER_LEESE", "1s");
    let told = ran(command.output().expect("it runs")).exits(0);
    assert!(told.err.contains("WINDLASS_WORKER_LEESE"), "{told}");
}

#[test]
fn a_password_in_the_store_s_url_appears_nowhere() {
    let place = Place::new();
    // Nobody listens on port 1; one of them is of no store at all, and one cannot be read.
    for store in [
        "mysql://ann:canary@db/x",
        "postgres://ann:canary@127.0.0.1:1/x?connect_timeout=1",
        "postgres://127.0.0.1:1/x?user=ann&password=canary&connect_timeout=1",
        "postgres://ann:canary@127.0.0.1:1/x?no_such_option=1",
        "redis://ann:canary@127.0.0.1:1/0",
        "rediss://:canary@127.0.0.1:1/0",
        "redis+asynq://:canary@127.0.0.1:1/0",
        "redis+cluster://:canary@127.0.0.1:1",
        "redis://:canary@127.0.0.1:port/0",
    ] {
        for arguments in [
            &["config", "show"][..],
            &["stats"],
            &["doctor"],
            &["-vvv", "task", "list"],
            &["migrate", "status"],
            &["serve", "--port", "0"],
            &["worker"],
        ] {
            let mut command = place.command();
            command.args(arguments).env("WINDLASS_STORE", store).env("RUST_LOG", "trace");
            command.env("RUST_BACKTRACE", "full");
            let told = ran(command.output().expect("it runs"));
            assert!(
                !told.out.contains("canary") && !told.err.contains("canary"),
                "{store}: {told}"
            );
        }
    }
}

#[test]
fn a_password_in_an_argument_is_warned_of_and_one_from_elsewhere_is_not() {
    let place = Place::new();
    let (store, plain) = ("redis://:canary@127.0.0.1:1/0", "redis://127.0.0.1:1/0");
    let show = |arguments: &[&str], variable: Option<&str>| {
        let mut command = place.command();
        command.args(["config", "show"]).args(arguments);
        if let Some(store) = variable {
            command.env("WINDLASS_STORE", store);
        }
        ran(command.output().expect("it runs")).exits(0).err
    };
    let warned = show(&["--store", store], None);
    assert_eq!(warned.matches("warning:").count(), 1, "{warned}");
    assert!(warned.contains("WINDLASS_STORE") && !warned.contains("canary"), "{warned}");
    let warned = show(&["--broker", &format!("high={store}")], None);
    assert!(warned.contains("WINDLASS_BROKER") && !warned.contains("canary"), "{warned}");
    assert_eq!(show(&["--store", plain], Some(store)), "");
    assert_eq!(show(&[], Some(store)), "");
    place.file("windlass.toml", &format!("store = {store:?}"));
    assert_eq!(show(&[], None), "");
}

#[test]
fn a_task_goes_by_the_settings_of_whoever_submits_it() {
    let place = Place::new();
    place.file("windlass.toml", "[task]\nmax_retries = 9");
    let task = place.run(&["enqueue", "noop"]).exits(0).json();
    assert_eq!(task["max_retries"], 9);
}

#[test]
fn the_sample_file_is_a_file_of_settings() {
    let place = Place::new();
    let sample = place.run(&["config", "sample"]).exits(0).out;
    place.file("windlass.toml", &sample);
    let shown = place.run(&["config", "show"]).exits(0).json();
    assert_eq!(shown["worker.lease"]["from"], "default");
    place.file("windlass.toml", &sample.replace("#lease = \"15s\"", "lease = \"1m\""));
    let shown = place.run(&["config", "show"]).exits(0).json();
    let lease = &shown["worker.lease"];
    assert_eq!((&lease["value"], &lease["from"]), (&"1m".into(), &"windlass.toml".into()));
    assert_eq!(lease["variable"], "WINDLASS_WORKER_LEASE");
    assert!(lease["description"].as_str().is_some_and(|text| text.contains("silent")), "{lease}");
    let table = place.run(&["config", "show", "-o", "table"]).exits(0).out;
    assert!(table.contains("WINDLASS_WORKER_LEASE") && table.contains("silent"), "{table}");
}

/// What a submit comes to with one setting in the environment.
fn submitted(variable: &str, value: &str, arguments: &[&str]) -> support::Ran {
    let place = Place::new();
    let mut command = place.command();
    command.args(["enqueue", "noop"]).args(arguments).env(variable, value);
    ran(command.output().expect("it runs"))
}

#[test]
fn settings_of_tasks_and_limits_change_what_they_say() {
    for (variable, value, field, expected) in [
        ("WINDLASS_TASK_MAX_RETRIES", "7", "max_retries", 7.0),
        ("WINDLASS_TASK_MAX_CRASHES", "7", "max_crashes", 7.0),
        ("WINDLASS_TASK_TIMEOUT", "1d", "timeout", 86_400.0),
    ] {
        let task = submitted(variable, value, &[]).exits(0).json();
        assert_eq!(task[field].as_f64(), Some(expected), "{variable}: {task}");
    }
    submitted("WINDLASS_LIMITS_PAYLOAD_BYTES_MAX", "2", &["[1]"]).exits(2);
    submitted("WINDLASS_LIMITS_JSON_DEPTH_MAX", "1", &["[[1]]"]).exits(2);
    submitted("WINDLASS_LIMITS_JSON_DEPTH_MAX", "2", &["[[1]]"]).exits(0);
    let place = Place::new();
    let mut command = place.command();
    command.args(["enqueue", "noop"]).env("WINDLASS_STORE", "sqlite:other.db");
    ran(command.output().expect("it runs")).exits(0);
    assert!(place.path().join("other.db").exists());
}

#[test]
fn settings_of_workers_change_what_they_say() {
    let place = Place::new();
    place.file(
        "windlass.toml",
        "[task]\nretention = \"0s\"\n[task.retry]\nshape = \"linear\"\nstep = \"1d\"\nmax = \"2d\"\njitter = 0.0\n\
         [worker]\nconcurrency_per_core = 3\n[limits]\nerror_bytes_max = 60\nresult_bytes_max = 9\n\
         [statistics]\nenabled = false\n[upkeep]\nsweep = \"100ms\"",
    );
    let server = place.dev(&[]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = place.run(&["workers", "list", "-o", "jsonl"]).exits(0).lines();
    assert_eq!(workers[0]["slots"], cores * 3);
    let message = json!({"message": "0123456789".repeat(10)}).to_string();
    let id = place.run(&["enqueue", "fail", &message]).exits(0).json();
    let id = id["id"].as_str().expect("an id").to_owned();
    let show = || place.run(&["task", "show", &id]).exits(0).json();
    support::eventually("it fails", || show()["state"] == "retrying");
    let task = show();
    assert_eq!(task["error"].as_str().map(str::len), Some(60), "{task}");
    // The pause before the first retry is one step.
    let instant = |name: &str| -> windlass::Timestamp {
        task[name].as_str().expect("a time").parse().expect("a time")
    };
    assert!(instant("run_at").since(instant("created_at")).as_secs() >= 86_400, "{task}");
    let long = ["enqueue", "echo", r#""0123456789""#, "--max-retries", "0", "--wait"];
    let refused = place.run(&long).exits(6);
    assert!(refused.err.contains("at most 9"), "{refused}");
    let kept = place.run(&["enqueue", "noop"]).exits(0).json();
    let kept = kept["id"].as_str().expect("an id");
    support::eventually("it is removed", || place.run(&["task", "show", kept]).code == 3);
    let stats = place.run(&["stats"]).exits(0).json();
    assert_eq!(stats["windows"]["1h"]["total"]["submitted"], 0, "{stats}");
    drop(server);
}

#[test]
fn settings_of_servers_change_what_they_say() {
    let place = Place::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
    let port = port.expect("it has an address").port();
    place.file(
        "windlass.toml",
        &format!(
            "[server]\nbind = \"127.0.0.1\"\nport = {port}\nnames_max = 1\nhosts = \"queue.example\"\nwaits_max = 1"
        ),
    );
    // Without the flag for a free port.
    let mut server = place
        .command()
        .arg("serve")
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let url = format!("http://127.0.0.1:{port}");
    support::eventually("it listens", || place.run(&["health", "--server", &url]).code == 0);
    place.run(&["enqueue", "noop", "--queue", "one", "--server", &url]).exits(0);
    place.run(&["enqueue", "noop", "--queue", "two", "--server", &url]).exits(2);
    server.kill().and_then(|()| server.wait()).expect("it ends");
    let metrics = place.run(&["config", "show"]).exits(0).json();
    assert_eq!(metrics["server.hosts"]["value"], "queue.example");
}
