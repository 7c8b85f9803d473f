//! Commands under a real worker: exit codes, streams, and that nothing is left behind.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use tempfile::TempDir;
use windlass::{Configure, Ending, Options, State};
use windlass_testkit::Method;
use windlass_testkit::faults::FaultyStore;

use super::super::testing::{Scene, check_failed, patiently};
use super::*;

/// How long a command may take that was told to end, in tests that wait for that.
const SHORT: Duration = Duration::from_millis(200);

fn exec(command: impl Into<String>) -> Exec {
    Exec { command: command.into(), variables: Vec::new() }
}

fn completed(result: &[u8]) -> Ending {
    Ending::Completed { result: Some(Bytes::copy_from_slice(result)) }
}

async fn run(command: &str, payload: &[u8]) -> Ending {
    let mut scene = Scene::start(Some(command)).await;
    let ending = scene.run("any.kind", payload).await;
    scene.end().await;
    ending
}

/// Where a command tells something, and a test waits for it.
struct Mailbox {
    path: PathBuf,
    _folder: TempDir,
}

impl Mailbox {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        Self { path, _folder: folder }
    }

    /// The process id that a command has written.
    async fn pid(&self) -> u32 {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
        patiently(read).await.unwrap().unwrap().trim().parse().unwrap()
    }

    /// A command with a child of its own, whose process id it tells; both run for ever.
    fn family(&self, before: &str) -> Exec {
        exec(format!("{before} sleep 1000 & echo $! > {}; wait", self.path.display()))
    }
}

/// True while a process runs; a zombie does not.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[tokio::test]
async fn the_payload_is_on_stdin_and_stdout_is_the_result_byte_for_byte() {
    let payload: Vec<u8> = (0..1_048_576_u32).map(|n| (n * 7 % 251) as u8).collect();
    assert!(run("cat", &payload).await == completed(&payload), "a large one, both ways at once");
    assert_eq!(run("cat", b"\xff\0 {} \n").await, completed(b"\xff\0 {} \n"));
    assert_eq!(run("true", b"").await, completed(b""));
}

#[tokio::test]
async fn a_command_need_not_read_its_input() {
    assert_eq!(run("exec <&-; echo fine", &[b'x'; 1_000_000]).await, completed(b"fine\n"));
    // Nor does a process that it leaves behind, which holds the other end.
    assert_eq!(run("sleep 1000 & echo fine", &[b'x'; 1_000_000]).await, completed(b"fine\n"));
    settled().await;
}

#[tokio::test]
async fn the_exit_code_says_how_the_run_ended() {
    assert_eq!(run("echo bad >&2; exit 65", b"").await, Ending::Discarded { error: "bad".into() });
    let empty = Ending::Discarded { error: "exit status 65".into() };
    assert_eq!(run("exit 65", b"").await, empty);
    assert_eq!(run("exit 75", b"").await, Ending::Snoozed { delay: Duration::from_secs(10) });
    check_failed(&run("echo out; exit 3", b"").await, "exit status 3");
    check_failed(&run("echo out; echo why >&2; exit 1", b"").await, "why");
    check_failed(&run("kill -9 $$", b"").await, "killed by signal 9");
    let Ending::Failed { error, .. } = run("no-such-command", b"").await else { panic!() };
    assert!(error.contains("not found"), "{error}");
}

#[tokio::test]
async fn the_environment_tells_which_task_it_is() {
    let names =
        ["TASK_ID", "EPOCH", "ATTEMPT", "TYPE", "QUEUE"].map(|name| format!("$WINDLASS_{name}"));
    let mut scene = Scene::start(Some(&format!("echo {}", names.join(" ")))).await;
    let id = scene.submit("some.kind", b"", Options::new()).await;
    let ending = scene.ended().await;
    scene.end().await;
    let epoch = scene.client.get(&id).await.unwrap().unwrap().epoch.unwrap();
    assert_eq!(ending, completed(format!("{id} {epoch} 1 some.kind default\n").as_bytes()));
}

#[tokio::test]
async fn a_result_on_descriptor_3_replaces_standard_output() {
    let command = "echo for people; echo 'result [1.50]' >&$WINDLASS_CONTROL_FD; echo more";
    assert_eq!(run(command, b"").await, completed(b"[1.50]"));
    let last = "echo 'result 1' >&3; printf 'result 2' >&3";
    assert_eq!(run(last, b"").await, completed(b"2"), "the last counts, with or without its end");
    let failed = run("echo 'result 1' >&3; echo why >&2; exit 1", b"").await;
    check_failed(&failed, "why");
}

#[tokio::test]
async fn what_is_printed_beside_a_result_has_no_bound() {
    // The sleep: of two pipes nobody knows which is read first.
    let command = "echo 'result 1' >&3; sleep 0.5; head -c 3000000 /dev/zero";
    assert_eq!(run(command, b"").await, completed(b"1"));
    let large = "(printf 'result \"'; head -c 1048576 /dev/zero | tr '\\0' x; echo '\"') >&3";
    let text = "the command reported a result of more than 1048576 bytes, the most kept";
    check_failed(&run(large, b"").await, text);
}

#[tokio::test]
async fn a_snooze_may_say_for_how_long() {
    let snoozed = |seconds| Ending::Snoozed { delay: Duration::from_secs(seconds) };
    assert_eq!(run("echo snooze 90m >&3; exit 75", b"").await, snoozed(5_400));
    assert_eq!(run("echo snooze 90m >&3", b"").await, completed(b""), "only with its exit code");
}

#[tokio::test]
async fn malformed_lines_are_ignored() {
    let command = "head -c 3000000 /dev/zero >&3; echo >&3; echo progress >&3; echo ok";
    assert_eq!(run(command, b"").await, completed(b"ok\n"));
}

#[tokio::test]
async fn progress_on_descriptor_3_is_that_of_the_run() {
    let mailbox = Mailbox::new();
    let command = format!("echo progress 0.25 first >&3; read line < {}", mailbox.path.display());
    let settings = "[worker]\nheartbeat = \"50ms\"";
    let mut scene =
        Scene::start_with(settings, |builder| add_with(builder, exec(command), SHORT)).await;
    let id = scene.submit("any", b"", Options::new()).await;
    let progress = async {
        loop {
            let record = scene.client.get(&id).await.unwrap().unwrap();
            if let Some(progress) = record.progress {
                return (progress.fraction, progress.note);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(patiently(progress).await, (0.25, String::from("first")));
    std::fs::write(&mailbox.path, "\n").unwrap();
    assert_eq!(scene.ended().await, completed(b""));
    scene.end().await;
}

#[tokio::test]
async fn commands_that_start_at_once_do_not_inherit_each_others_pipes() {
    let pipes = "for f in /proc/$$/fd/*; do readlink $f; done | grep pipe | sort -u | wc -l";
    let command = format!("count=$({pipes}); echo \"result $count\" >&3");
    let alone = run(&command, b"").await;
    let mut scene = Scene::start(Some(&command)).await;
    for _ in 0..40 {
        scene.submit("any", b"", Options::new()).await;
    }
    for _ in 0..40 {
        assert_eq!(scene.ended().await, alone);
    }
    scene.end().await;
}

#[tokio::test]
async fn secrets_of_the_worker_do_not_reach_the_command() {
    let secrets = [
        "WINDLASS_TOKEN",
        "WINDLASS_STORE",
        "WINDLASS_LATER",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "REDISCLI_AUTH",
    ];
    let scene = Scene::start_with("", |builder| {
        builder.handle_any(move |task, cx| async move {
            let mut shell = Command::new("env");
            secrets.iter().for_each(|name| _ = shell.env(name, "secret"));
            shell.env("INNOCENT", "kept").env("PGPASSWORD", "handed on");
            hide_secrets(
                &mut shell,
                secrets.iter().chain(&["PGPASSWORD"]).map(Into::into),
                &["PGPASSWORD".into()],
            );
            set_environment(&mut shell, &task, &cx);
            Ok(shell.output()?.stdout.into())
        })
    });
    let mut scene = scene.await;
    let Ending::Completed { result: Some(seen) } = scene.run("any", b"").await else { panic!() };
    let seen = String::from_utf8(seen.to_vec()).unwrap();
    assert!(!seen.contains("secret") && seen.contains("INNOCENT=kept"), "{seen}");
    assert!(seen.contains("PGPASSWORD=handed on"), "{seen}");
    scene.end().await;
}

#[tokio::test]
async fn a_command_that_prints_too_much_fails_and_is_ended() {
    let mut scene = Scene::start(Some("echo $$ >&2; exec yes")).await;
    let text = "the command printed more than 1048576 bytes, the most kept";
    check_failed(&scene.run("any", b"").await, text);
    scene.end().await;
    let just = run("head -c 1048576 /dev/zero", b"").await;
    assert!(just == completed(&vec![0; 1_048_576]), "just as much as may be kept");
    check_failed(&run("head -c 1048577 /dev/zero", b"").await, text);
}

#[tokio::test]
async fn of_a_long_stderr_the_end_is_kept() {
    let long = "head -c 9000000 /dev/zero | tr '\\0' x >&2; echo the reason >&2; exit 1";
    let Ending::Failed { error, .. } = run(long, b"").await else { panic!() };
    assert!(error.ends_with("xxxthe reason"), "{}", &error[error.len() - 40..]);
    assert!((16_000..=16_384).contains(&error.len()), "{}", error.len());
    // Each byte that is no text takes three as text.
    let binary = "head -c 90000 /dev/zero | tr '\\0' '\\377' >&2; echo the reason >&2; exit 1";
    let Ending::Failed { error, .. } = run(binary, b"").await else { panic!() };
    assert!(error.ends_with("\u{fffd}the reason"), "{}", error.len());
    assert!((16_000..=16_384).contains(&error.len()), "{}", error.len());
}

#[tokio::test]
async fn a_process_left_behind_holds_up_no_run_and_ends_with_it() {
    let mailbox = Mailbox::new();
    let command = format!("echo early; sleep 1000 & echo $! > {}", mailbox.path.display());
    let (ending, pid) = tokio::join!(run(&command, b""), mailbox.pid());
    assert_eq!(ending, completed(b"early\n"));
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_cancelled_run_ends_when_its_whole_group_is_gone() {
    let mailbox = Mailbox::new();
    let mut scene = Scene::start(Some(&mailbox.family("").command)).await;
    let id = scene.submit("any", b"", Options::new()).await;
    let pid = mailbox.pid().await;
    assert!(is_alive(pid));
    scene.client.cancel(&id).await.unwrap();
    assert_eq!(scene.ended().await, Ending::Cancelled);
    assert!(!is_alive(pid));
    scene.end().await;
    assert_eq!(scene.client.get(&id).await.unwrap().unwrap().state, State::Cancelled);
}

#[tokio::test]
async fn who_does_not_end_when_told_to_is_killed() {
    let mailbox = Mailbox::new();
    // The child inherits that the signal is ignored.
    let command = mailbox.family("trap '' TERM;");
    let mut scene = Scene::start_with("", |builder| add_with(builder, command, SHORT)).await;
    let id = scene.submit("any", b"", Options::new()).await;
    let pid = mailbox.pid().await;
    scene.client.cancel(&id).await.unwrap();
    assert_eq!(scene.ended().await, Ending::Cancelled);
    assert!(!is_alive(pid));
    scene.end().await;
}

#[tokio::test]
async fn a_run_over_its_timeout_ends_with_its_group() {
    for before in ["", "trap '' TERM;"] {
        let mailbox = Mailbox::new();
        let command = mailbox.family(before);
        let mut scene = Scene::start_with("", |builder| add_with(builder, command, SHORT)).await;
        let options = Options::new().max_retries(0).timeout(Duration::from_secs(2));
        scene.submit("any", b"", options).await;
        let pid = mailbox.pid().await;
        assert_eq!(scene.ended().await, Ending::TimedOut);
        assert!(!is_alive(pid), "{before} lives beside the next attempt");
        scene.end().await;
    }
}

#[tokio::test]
async fn a_worker_that_is_stopped_gives_the_task_back_and_ends_the_group() {
    let mailbox = Mailbox::new();
    let command = mailbox.family("");
    let settings = "[worker]\nshutdown_timeout = \"100ms\"";
    let mut scene = Scene::start_with(settings, |builder| add_with(builder, command, SHORT)).await;
    let id = scene.submit("any", b"", Options::new()).await;
    let pid = mailbox.pid().await;
    scene.end().await;
    assert!(!is_alive(pid));
    let record = scene.client.get(&id).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts), (State::Pending, 0));
}

#[tokio::test]
async fn a_fenced_run_is_killed_before_its_lease_is_over_whatever_its_grace() {
    let mailbox = Mailbox::new();
    // Nobody would wait for so long.
    let (command, grace) = (mailbox.family("trap '' TERM;"), Duration::from_secs(1_000));
    let (store, faults) = FaultyStore::around(windlass::open("memory:").await.unwrap());
    let settings = "[worker]\nlease = \"4s\"\nheartbeat = \"1s\"";
    let handlers = |builder| add_with(builder, command, grace);
    let mut scene = Scene::start_on(store, settings, handlers).await;
    scene.submit("any", b"", Options::new()).await;
    let pid = mailbox.pid().await;
    faults.hold(Method::Beat);
    assert_eq!(scene.ended().await, Ending::Released);
    assert!(!is_alive(pid));
    faults.release(Method::Beat);
    drop(scene);
}

#[tokio::test]
async fn the_shell_stays_a_zombie_until_its_group_is_gone() {
    let mailbox = Mailbox::new();
    let path = mailbox.path.display();
    // The shell ends at once and leaves somebody behind who does not end when asked to.
    let command = exec(format!("trap '' TERM; sleep 1000 >&- 2>&- & echo $! > {path}"));
    let grace = Duration::from_secs(1_000);
    let mut scene = Scene::start_with("", |builder| add_with(builder, command, grace)).await;
    scene.submit("any", b"", Options::new()).await;
    let pid = mailbox.pid().await;
    let group = nix::unistd::getpgid(Some(Pid::from_raw(pid.cast_signed()))).unwrap();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{group}/stat"))?;
        Ok::<_, std::io::Error>(stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()))
    };
    patiently(async {
        while state().unwrap() != Some('Z') {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // By then a reaper would have had its turn.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(state().unwrap(), Some('Z'), "its id is free for others");
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    assert_eq!(scene.ended().await, completed(b""));
    assert!(state().is_err(), "it is reaped");
    scene.end().await;
}

#[test]
fn the_end_of_the_runtime_kills_what_still_runs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mailbox = Mailbox::new();
    let (pid, scene) = runtime.block_on(async {
        // Nobody would wait for so long.
        let (command, grace) = (mailbox.family("trap '' TERM;"), Duration::from_secs(1_000));
        let scene = Scene::start_with("", |builder| add_with(builder, command, grace)).await;
        scene.submit("any", b"", Options::new()).await;
        (mailbox.pid().await, scene)
    });
    drop(runtime);
    // Killed is not yet gone, and nobody tells when it is.
    let killed = std::time::Instant::now();
    while is_alive(pid) {
        assert!(killed.elapsed() < Duration::from_secs(30), "it still runs");
        std::thread::yield_now();
    }
    drop(scene);
}

#[test]
fn an_exit_status_without_words_is_told() {
    let told = |raw| complaint(ExitStatus::from_raw(raw), &Output::new(0, 0), 100);
    assert_eq!(told(3 << 8), "exit status 3");
    assert_eq!(told(15), "killed by signal 15");
}
