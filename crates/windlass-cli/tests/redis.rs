//! The binary on a Redis: what it tells of the server, what it mends, and how little an idle worker asks;
//! and with one in front of a PostgreSQL.

#![cfg(feature = "redis")]

mod support;

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::scrape::Scrape;
use support::{Place, Server, eventually, ran};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer};

/// Short, so that a sweep comes while the test waits.
const QUICK: &str = "[upkeep]\nsweep = \"100ms\"\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn a_server_that_may_lose_something_is_told_of_everywhere_and_is_ready_all_the_same() {
    for (keeping, loss) in
        [(Keeping::Nothing, "appendonly no"), (Keeping::EverySecond, "appendfsync everysec")]
    {
        let redis = RedisServer::start(keeping);
        let (place, store) = (Place::new(), redis.url("wl"));
        let server = place.start("serve", &["--store", &store]);
        let (status, body) = server.get("/readyz");
        let ready = json(&body);
        assert_eq!((status, &ready["status"]), (200, &"ok".into()), "{body}");
        let told = |value: &Value| value.as_str().is_some_and(|text| text.contains(loss));
        assert!(told(&ready["store"]["loss_window"]), "{body}");
        assert!(told(&ready["warnings"][0]["text"]), "{body}");
        assert_eq!(ready["warnings"][0]["subject"], "durability");
        // A warning breaks no promise: the doctor is content.
        let report = place.run(&["doctor", "--store", &store, "-o", "json"]).exits(0).json();
        assert_eq!(report["findings"][0]["severity"], "warning", "{report}");
        assert!(told(&report["findings"][0]["text"]), "{report}");
        // A server logs it once when it starts, and a command that only asks says nothing.
        let log = server.end();
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(loss)), "{log}");
        assert_eq!(place.run(&["stats", "--store", &store]).exits(0).err, "");
        let fast = format!("{store}&durability=fast");
        let server = place.start("serve", &["--store", &fast]);
        let (_, body) = server.get("/readyz");
        assert_eq!(json(&body)["warnings"], Value::Array(Vec::new()), "{body}");
        let log = server.end();
        assert!(!log.contains("WARN"), "it was asked for: {log}");
    }
}

#[test]
fn a_durable_server_needs_no_words() {
    let redis = RedisServer::start(Keeping::Always);
    let (place, store) = (Place::new(), redis.url("wl"));
    let server = place.start("serve", &["--store", &store]);
    let (_, body) = server.get("/readyz");
    let ready = json(&body);
    assert_eq!(ready["store"]["durability"], "durable", "{body}");
    assert_eq!(ready["warnings"], Value::Array(Vec::new()), "{body}");
    let report = place.run(&["doctor", "--store", &store, "-o", "json"]).exits(0).json();
    assert_eq!(report["findings"], Value::Array(Vec::new()), "{report}");
    let log = server.end();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn a_server_that_throws_tasks_away_is_refused_or_a_problem() {
    let redis = RedisServer::start_with(Keeping::Always, &["--maxmemory-policy", "volatile-ttl"]);
    let (place, store) = (Place::new(), redis.url("wl"));
    let refused = place.run(&["stats", "--store", &store]).exits(4);
    assert!(refused.err.contains("volatile-ttl"), "{refused}");
    let forced = format!("{store}&eviction=allow");
    let server = place.start("serve", &["--store", &forced]);
    let (status, body) = server.get("/readyz");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("volatile-ttl"), "{body}");
    let report = place.run(&["doctor", "--store", &forced, "-o", "json"]).exits(1).json();
    assert_eq!(report["findings"][0]["subject"], "memory", "{report}");
    let log = server.end();
    assert!(log.contains("volatile-ttl"), "{log}");
}

/// A server that answers and refuses writes is not ready: the reason is in the answer, and in the log.
#[test]
fn a_server_that_refuses_writes_is_not_ready() {
    let redis = RedisServer::start(Keeping::Nothing);
    let (place, store) = (Place::new(), redis.url("wl"));
    let server = place.start("serve", &["--store", &store]);
    assert_eq!(server.post("/api/v1/tasks", r#"{"type":"noop"}"#).0, 201);
    let operate = |words: &str| {
        let words: Vec<_> = words.split_whitespace().collect();
        assert_eq!(redis.operate(&words).expect("it answers"), "+OK\r\n");
    };
    for (breaks, heals, reason) in [
        ("CONFIG SET maxmemory 1mb", "CONFIG SET maxmemory 0", "maxmemory"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "read-only"),
        ("SET wl:{~}:leases strange", "RENAME wl:{~}:leases strange", "wrong type"),
    ] {
        operate(breaks);
        let (status, body) = server.get("/readyz");
        let problem = json(&body);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(status == 503 && detail.contains(reason), "{breaks}: {status} {body}");
        place.run(&["doctor", "--store", &store]).exits(1);
        operate(heals);
        assert_eq!(server.get("/readyz").0, 200, "{heals}");
    }
}

/// Managed servers often keep their settings to themselves.
#[test]
fn a_server_that_may_not_be_asked_is_judged_by_what_it_tells() {
    let redis = RedisServer::start_with(Keeping::Always, &["--maxmemory-policy", "allkeys-lru"]);
    let words = "ACL SETUSER guest on >secret ~wl:* &wl:{*}:ends &wl:{~}:orders \
                 +@read +@write +@scripting +@pubsub +@connection +info +time";
    let words: Vec<_> = words.split_whitespace().collect();
    assert_eq!(redis.operate(&words).expect("it answers"), "+OK\r\n");
    let store = format!("redis://guest:secret@127.0.0.1:{}/", redis.port());
    let place = Place::new();
    let refused = place.run(&["stats", "--store", &store]).exits(4);
    assert!(refused.err.contains("allkeys-lru"), "{refused}");
    let server = place.start("serve", &["--store", &format!("{store}?eviction=allow")]);
    // These rights are enough for everything, as the documentation says.
    let store = format!("{store}?eviction=allow");
    let worker = place.command().args(["worker", "--store", &store]).stderr(Stdio::null()).spawn();
    let _worker = Killed(worker.expect("cargo has built the binary"));
    let done = place.run(&["enqueue", "echo", "1", "--store", &store, "--wait"]).exits(0).json();
    assert_eq!(done["result"], 1, "{done}");
    let denied = redis.operate(&["ACL", "LOG"]).expect("it answers");
    let objects = denied.matches("\r\nobject\r\n").count();
    let settings = denied.matches("\r\nobject\r\n$10\r\nconfig|get\r\n").count();
    assert_eq!(objects, settings, "nothing else was denied: {denied}");
    let log = server.end();
    assert!(log.contains("does not tell"), "{log}");
}

/// On asynq's keys a success leaves nothing unless it was asked for, as in Go.
#[test]
fn who_waits_for_a_task_on_asynqs_keys_hears_of_its_end() {
    let redis = RedisServer::start(Keeping::Nothing);
    let (place, store) = (Place::new(), format!("redis+asynq://127.0.0.1:{}/", redis.port()));
    let worker = place.command().args(["worker", "--store", &store]).stderr(Stdio::null()).spawn();
    let _worker = Killed(worker.expect("cargo has built the binary"));
    let enqueue = |more: &[&str]| place.run(&[&["enqueue", "--store", &store][..], more].concat());
    let done = enqueue(&["echo", "1", "--wait"]).exits(0).json();
    assert_eq!((&done["state"], &done["result"]), (&"completed".into(), &1.into()), "{done}");
    let dead =
        enqueue(&["fail", "{\"message\":\"boom\"}", "--wait", "--max-retries", "0"]).exits(6);
    assert!(dead.err.contains("boom"), "{dead}");
    // Not kept by its submit, but by the wait that comes before its end.
    let later = enqueue(&["echo", "2", "--delay", "2s"]).exits(0).json();
    let id = later["id"].as_str().expect("an id");
    let done = place.run(&["task", "wait", id, "--store", &store]).exits(0).json();
    assert_eq!((&done["state"], &done["result"]), (&"completed".into(), &2.into()), "{done}");
    let gone = place.run(&["task", "wait", "nobody", "--store", &store]).exits(3);
    assert!(gone.err.contains("no task nobody"), "{gone}");
    for unknown in [&["queue", "show", "nowhere"][..], &["queue", "resume", "nowhere"]] {
        place.run(&[unknown, &["--store", &store]].concat()).exits(3);
    }
}

#[test]
fn a_task_that_a_go_server_aggregates_is_refused_with_the_reason() {
    let redis = RedisServer::start(Keeping::Nothing);
    let (place, store) = (Place::new(), format!("redis+asynq://127.0.0.1:{}/", redis.port()));
    // A message with type, id and queue, as Go would leave it.
    let message = "\u{a}\u{4}work\u{1a}\u{4}part\u{22}\u{7}default";
    let (task, set) = ("asynq:{default}:t:part", "asynq:{default}:g:digest:of-go");
    for words in [
        &["SADD", "asynq:queues", "default"][..],
        &["HSET", task, "msg", message, "state", "aggregating", "group", "digest"],
        &["ZADD", set, "1", "part"],
        &["ZADD", "asynq:{default}:aggregation_sets", "99999999999", set],
    ] {
        assert!(redis.operate(words).expect("it answers").starts_with(':'), "{words:?}");
    }
    let server = place.start("serve", &["--store", &store]);
    for action in ["cancel", "retry"] {
        let (status, body) = server.post(&format!("/api/v1/tasks/part/{action}"), "");
        assert_eq!(status, 409, "{body}");
        assert!(body.contains("held by a program outside windlass"), "{body}");
    }
    let told = place.run(&["task", "delete", "part", "--yes", "--store", &store]).exits(4);
    assert!(told.err.contains("held by a program outside windlass"), "{told}");
    let queue = place.run(&["queue", "show", "default", "--store", &store]).exits(0).json();
    assert_eq!(queue["depth"]["scheduled"], 1, "{queue}");
    place.run(&["queue", "purge", "default", "--yes", "--store", &store]).exits(0);
    place.run(&["task", "show", "part", "--store", &store]).exits(0);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let place = Place::new();
    for scheme in ["redis", "redis+asynq"] {
        let told = place.run(&["stats", "--store", &format!("{scheme}://u:secret@127.0.0.1:1/")]);
        assert!(told.code != 0 && told.err.contains("127.0.0.1:1"), "{told}");
        assert!(!told.err.contains("secret"), "{told}");
    }
    let told = place.run(&["stats", "--store", "redis+asynq://127.0.0.1:1/?prefix=other"]).exits(2);
    assert!(told.err.contains("fixed names"), "{told}");
}

#[test]
fn what_the_leader_mends_is_counted() {
    let redis = RedisServer::start(Keeping::Nothing);
    let (place, store) = (Place::new(), redis.url("wl"));
    place.file("windlass.toml", QUICK);
    let server = place.start("serve", &["--store", &store]);
    let repairs = || json(&server.get("/api/v1/stats").1)["store"]["repairs_total"].clone();
    let (status, answer) = server.post("/api/v1/tasks", "{}");
    assert_eq!((status, repairs()), (201, 0.into()), "{answer}");
    assert_eq!(redis.operate(&["DEL", "wl:{default}:st"]).expect("it answers"), ":1\r\n");
    eventually("the counters are mended", || repairs() == 1);
    let counts = json(&server.get("/api/v1/stats").1)["tasks"]["by_state"].clone();
    assert_eq!(counts["pending"], 1, "{counts}");
}

/// A client of the server as one of its users: each of our processes is one of its own.
fn user(redis: &RedisServer, name: &str) -> String {
    let words = ["ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all"];
    assert_eq!(redis.operate(&words).expect("it answers"), "+OK\r\n");
    format!("redis://{name}:secret@127.0.0.1:{}/", redis.port())
}

/// The addresses from which a user is connected.
fn addresses(redis: &RedisServer, user: &str) -> HashSet<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("it listens");
    stream.write_all(b"CLIENT LIST\r\nQUIT\r\n").expect("it reads");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("it answers with text");
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(name)).map(str::to_owned)
    };
    let is_its = |line: &&str| field(line, "user=").as_deref() == Some(user);
    told.lines().filter(is_its).filter_map(|line| field(line, "addr=")).collect()
}

/// The commands that come in within a time, each with the address that it comes from.
fn commands(redis: &RedisServer, time: Duration) -> Vec<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("it listens");
    stream.write_all(b"MONITOR\r\n").expect("it reads");
    let ends_at = Instant::now() + time;
    let mut lines = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    let (mut seen, mut line) = (Vec::new(), Vec::new());
    loop {
        let left = ends_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return seen;
        }
        stream.set_read_timeout(Some(left)).expect("a time above 0");
        // What was read of a line stays in `line` when the time is over.
        if lines.read_until(b'\n', &mut line).is_err() {
            return seen;
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        line.clear();
        // +1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
        let Some((_, rest)) = text.split_once('[') else { continue };
        let Some((from, command)) = rest.split_once(']') else { continue };
        let from = from.split(' ').next_back().unwrap_or_default();
        seen.push((from.to_owned(), command.trim().chars().take(90).collect()));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two commands a second, in real time: it beats, waits for the bell, looks now and then, and would lead.
#[test]
fn an_idle_worker_that_does_not_lead_sends_at_most_two_commands_a_second() {
    const SECONDS: u64 = 10;
    let redis = RedisServer::start(Keeping::Nothing);
    let (leads, idles) = (user(&redis, "leads"), user(&redis, "idles"));
    let place = Place::new();
    let server = place.start("serve", &["--store", &leads]);
    // Queues that it does not serve; it could be told of a cancellation in each of them.
    for number in 0..20 {
        let (status, answer) =
            server.post("/api/v1/tasks", &format!(r#"{{"queue":"other-{number}"}}"#));
        assert_eq!(status, 201, "{answer}");
    }
    let exists = |key: &str| redis.operate(&["EXISTS", key]).is_ok_and(|told| told == ":1\r\n");
    eventually("someone leads", || exists("wl:{~}:lead"));
    let worker = place.command().args(["worker", "--store", &idles]).stderr(Stdio::null()).spawn();
    let _worker = Killed(worker.expect("cargo has built the binary"));
    eventually("it is registered", || exists("wl:{~}:workers"));
    // It has begun when it waits for the bell, and for what others tell.
    eventually("it waits", || addresses(&redis, "idles").len() >= 4);
    let before = addresses(&redis, "idles");
    let seen = commands(&redis, Duration::from_secs(SECONDS));
    let own: HashSet<_> = addresses(&redis, "idles").union(&before).cloned().collect();
    let sent: Vec<_> = seen.iter().filter(|(from, _)| own.contains(from)).collect();
    assert!(sent.len() >= 5, "it is alive: {seen:#?}");
    assert!(sent.len() <= 2 * SECONDS as usize, "{} commands: {sent:#?}", sent.len());
}

/// The subjects of what `/readyz` warns of.
fn warnings(server: &Server) -> Vec<Value> {
    let (status, body) = server.get("/readyz");
    assert_eq!(status, 200, "{body}");
    let ready = json(&body);
    let all = ready["warnings"].as_array().expect("warnings are a list");
    all.iter().map(|one| one["subject"].clone()).collect()
}

/// References that lead nowhere, since somebody without the broker was faster, are refused and counted.
#[test]
fn brokers_and_what_is_refused_of_them_are_in_the_metrics() {
    let redis = RedisServer::start(Keeping::Nothing);
    let store = PostgresServer::shared().tcp_url(&PostgresServer::new_schema());
    let (place, store) = (Place::new(), format!("{store}&durability=fast"));
    let broker = redis.url("wl");
    let stores = ["--store", &store, "--broker", &broker];
    let server = place.start("serve", &stores);
    // A leader that meets a broker for the first time clears its lists: then the references below would be gone early.
    eventually("the leader has compared the broker with the ledger", || {
        let scrape = Scrape::of(&server);
        let promotes = scrape.all("windlass_store_op_seconds_count");
        promotes.iter().any(|(series, count)| series.contains("op=\"promote\"") && *count >= 2.0)
    });
    let ids: Vec<_> = (0..3)
        .map(|_| {
            let (status, task) = server.post("/api/v1/tasks", r#"{"type":"noop"}"#);
            assert_eq!(status, 201, "{task}");
            json(&task)["id"].as_str().expect("an id").to_owned()
        })
        .collect();
    let plain = place.start("worker", &["--store", &store]);
    for id in &ids {
        place.run(&["task", "wait", id, "--server", &server.url]).exits(0);
    }
    assert!(!Scrape::of(&plain).names().contains("windlass_broker_up"), "it has none");
    plain.end();
    let worker = place.start("worker", &stores);
    let up = |process| {
        Scrape::of(process).all("windlass_broker_up")
            == [("windlass_broker_up{broker=\"all\"}", 1.0)]
    };
    assert!(up(&server) && up(&worker));
    let refused = |reason: &str, count: f64| {
        let series = format!("windlass_broker_refused_total{{reason=\"{reason}\"}}");
        eventually(&format!("{series} is {count}"), || {
            Scrape::of(&worker).get(&series) == Some(count)
        });
    };
    refused("gone", 3.0);
    refused("busy", 0.0);
    refused("paused", 0.0);
    redis.kill();
    place.run(&["enqueue", "noop", "--wait", "--server", &server.url]).exits(0);
    let down = [("windlass_broker_up{broker=\"all\"}", 0.0)];
    eventually("it is missed", || Scrape::of(&server).all("windlass_broker_up") == down);
}

#[test]
fn without_its_brokers_work_goes_on_and_it_is_told_of() {
    let (high, low) = (RedisServer::start(Keeping::Nothing), RedisServer::start(Keeping::Nothing));
    let store = PostgresServer::shared().tcp_url(&PostgresServer::new_schema());
    let (place, store) = (Place::new(), format!("{store}&durability=fast"));
    let (first, second) = (format!("high={}", high.url("wl")), format!("low={}", low.url("wl")));
    let stores = ["--store", &store, "--broker", &first, "--broker", &second];
    let server = place.start("dev", &stores);
    let (_, body) = server.get("/readyz");
    assert_eq!(json(&body)["store"]["name"], "hybrid", "{body}");
    assert!(!warnings(&server).contains(&"broker".into()), "{body}");
    let run = |priority: &str| {
        let words = ["enqueue", "echo", "1", "--wait", "--priority", priority];
        place.run(&[&words[..], &stores].concat()).exits(0);
    };
    run("high");
    run("low");
    high.kill();
    low.kill();
    run("critical");
    run("normal");
    let away = |count| warnings(&server).iter().filter(|one| *one == "broker").count() == count;
    eventually("both are missed", || away(2));
    high.launch();
    low.launch();
    eventually("both are back", || away(0));
    run("high");
    run("low");
    let words = ["bench", "--mode", "drain", "--tasks", "300", "-o", "json"];
    place.run(&[&words[..], &stores].concat()).exits(0);
}

/// Logs of a server and commands at the loudest level, on stores that ask for a password or would take any.
#[test]
fn a_password_that_opens_the_store_appears_nowhere() {
    let redis = RedisServer::start(Keeping::Nothing);
    redis.operate(&["CONFIG", "SET", "requirepass", "canary"]).expect("it has a password now");
    let postgres = PostgresServer::shared();
    let behind = postgres.tcp_url("passwords").replace("windlass@", "windlass:canary@");
    for store in [format!("redis://:canary@127.0.0.1:{}/0", redis.port()), behind] {
        let place = Place::new();
        let set = |mut command: std::process::Command| {
            command.env("WINDLASS_STORE", &store).env("RUST_LOG", "trace");
            command
        };
        let server = place.start_with(set(place.command()), "serve", &[]);
        let (status, body) = server.post("/api/v1/tasks", r#"{"type":"noop"}"#);
        assert_eq!(status, 201, "{body}");
        for arguments in [
            &["stats"][..],
            &["doctor"],
            &["config", "show"],
            &["task", "list"],
            &["-vvv", "queue", "list"],
        ] {
            let told = ran(set(place.command()).args(arguments).output().expect("it runs"));
            assert!(!told.out.contains("canary") && !told.err.contains("canary"), "{told}");
        }
        for process in std::fs::read_dir("/proc").expect("a list of processes").flatten() {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            assert!(!line.contains("canary") || line.contains("redis-server"), "{line}");
        }
        let log = server.end();
        assert!(log.contains("INFO"), "there is a log");
        assert_eq!(log.lines().find(|line| line.contains("canary")), None);
    }
}
