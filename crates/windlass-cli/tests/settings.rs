//! Settings: flag over environment over file over user's file over default, and nothing secret shown.

mod support;

use serde_json::Value;
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
            command.args(arguments).env("WINDLASS_STORE", store).env("WINDLASS_LOG", "trace");
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
