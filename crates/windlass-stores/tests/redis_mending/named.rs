//! Damaged data are named: the doctor names keys and records, and errors of calls name the queue.

use std::collections::BTreeSet;

use windlass_core::store::{Action, ChangeParams, Filter, GetParams, ListParams, Parts, Target};
use windlass_core::{Error, ErrorKind, Reason, State, TaskId};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::{HOUR, SECOND};

use crate::stage::{Stage, stored};

#[tokio::test]
async fn doctor_names_every_key_of_another_type() {
    let types = [
        ("hash", &["d", "b", "g", "st", "mend", "u", "cr"][..]),
        ("zset", &["z", "dead", "back", "ks", "ut", "lost"]),
        ("list", &["k:0", "k:99", "k:100", "k:3600000", "k:250000000000000"]),
    ];
    let mut keys: Vec<_> = types
        .iter()
        .flat_map(|(wanted, names)| names.iter().map(|name| (name.to_string(), *wanted)))
        .collect();
    keys.extend(
        (0..8).flat_map(|lane| ["s", "c"].map(|name| (format!("{name}:{lane}"), "stream"))),
    );
    keys.extend((0..4).map(|priority| (format!("bell:{priority}"), "list")));
    keys.push(("j".into(), "stream"));
    let stage = Stage::new().await;
    stage.scene.submit(draft()).await;
    assert_eq!(stage.findings("damage").await, [""; 0], "a sound queue");
    for (key, _) in &keys {
        stage.run::<()>(stage.on("SET", key).arg("no such thing")).await;
    }
    for key in ["term", "watch"] {
        stage.run::<()>(&stage.on("DEL", key)).await;
        stage.run::<()>(stage.on("RPUSH", key).arg("no such thing")).await;
    }
    let found = stage.findings("damage").await;
    let strings = ["term", "watch"].map(|key| (key.to_owned(), "list", "string"));
    let keys = keys.into_iter().map(|(key, wanted)| (key, "string", wanted)).chain(strings);
    for (key, is, wanted) in keys {
        let text = format!(":{{main}}:{key} is a {is} and should be a {wanted}");
        let is_named = |found: &String| found.starts_with("queue main ") && found.ends_with(&text);
        assert!(found.iter().any(is_named), "{key}: {found:#?}");
    }
}

#[tokio::test]
async fn promote_overwrites_an_unreadable_term_that_doctor_names() {
    for text in ["no number", "", "nan", "inf", "1e300", "99999999999999999999"] {
        let stage = Stage::new().await;
        let s = &stage.scene;
        let id = s.submit(draft().after(SECOND)).await;
        stage.run::<()>(stage.on("SET", "term").arg(text)).await;
        let found = stage.findings("damage").await;
        assert!(
            found.iter().any(|found| found.contains(":{main}:term is a string without a number")),
            "{text}: {found:#?}"
        );
        s.advance(SECOND);
        s.promote().await;
        s.expect(&id, State::Pending, text).await;
        let term: String = stage.run(&stage.on("GET", "term")).await;
        assert_eq!(term, s.duty().await.term.to_string(), "{text}");
        assert_eq!(stage.findings("damage").await, [""; 0], "{text}");
    }
}

#[tokio::test]
async fn an_older_leader_is_refused_although_the_term_is_unreadable() {
    let stage = Stage::new().await;
    let s = &stage.scene;
    let id = s.submit(draft().after(SECOND)).await;
    let old = s.duty().await;
    s.advance(HOUR);
    s.lead_as("successor").await;
    stage.run::<()>(stage.on("SET", "term").arg("unreadable")).await;
    assert!(s.store.promote(old).await.unwrap_err().is_lease_lost());
    s.expect(&id, State::Scheduled, "the older leader has not promoted it").await;
    let term: String = stage.run(&stage.on("GET", "term")).await;
    assert_eq!(term, "unreadable", "the older leader has written nothing");
}

async fn spoil(stage: &Stage, ids: &[TaskId], text: &str) {
    for id in ids {
        stage.run::<()>(stage.on("HSET", "d").arg(&stored(id)[..]).arg(text)).await;
    }
}

#[tokio::test]
async fn doctor_names_records_that_cannot_be_read() {
    let stage = Stage::new().await;
    let sound = stage.scene.submit(draft()).await;
    let damaged = stage.scene.submit_many(3).await;
    spoil(&stage, &damaged[..2], "?").await;
    // One with a whole head, of whose body nothing is left.
    let record: Vec<u8> = stage.run(stage.on("HGET", "d").arg(&stored(&damaged[2])[..])).await;
    let head = record.iter().position(|byte| *byte == b' ').unwrap() + 1;
    let cut = &record[..head + 38 + 1];
    stage.run::<()>(stage.on("HSET", "d").arg(&stored(&damaged[2])[..]).arg(cut)).await;
    let found = stage.findings("records").await;
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("queue main "), "{found:#?}");
    for id in &damaged {
        assert!(found[0].contains(id.as_str()), "{id}: {found:#?}");
    }
    assert!(!found[0].contains(sound.as_str()), "{found:#?}");
}

#[tokio::test]
async fn doctor_names_twenty_of_many_unreadable_records() {
    let stage = Stage::new().await;
    let damaged = stage.scene.submit_many(25).await;
    spoil(&stage, &damaged, "?").await;
    let found = stage.findings("records").await.remove(0);
    let named: BTreeSet<_> = damaged.iter().filter(|id| found.contains(id.as_str())).collect();
    assert_eq!(named.len(), 20, "{found}");
    assert!(found.contains(" and more;"), "{found}");
}

#[tokio::test]
async fn doctor_names_documents_of_another_type() {
    let stage = Stage::new().await;
    let keys =
        ["doc:statistics", "doc:statistics.1h", "names:statistics", "doc:token", "names:audit"];
    assert_eq!(stage.findings("damage").await, [""; 0]);
    for key in keys {
        stage.run::<()>(stage.on_fleet("SET", key).arg("no such thing")).await;
    }
    let found = stage.findings("damage").await;
    for key in keys {
        let key = format!(":{{~}}:{key} is a string and should be a ");
        assert!(found.iter().any(|found| found.contains(&key)), "{key}: {found:#?}");
    }
    assert_eq!(found.len(), keys.len(), "{found:#?}");
}

fn expect_named(error: &Error, what: &str) {
    assert_eq!(
        (error.kind(), error.reason()),
        (ErrorKind::Corrupt, Reason::DamagedQueue),
        "{what}: {error:?}"
    );
    assert!(error.to_string().contains("queue main"), "{what}: {error}");
}

#[tokio::test]
async fn changes_lists_and_shows_of_a_damaged_queue_name_it() {
    let filter = || Filter { queue: Some(queue("main")), ..Filter::default() };
    for key in ["z", "mend", "d", "j"] {
        let stage = Stage::new().await;
        let store = &stage.scene.store;
        let id = stage.scene.submit(draft().after(SECOND)).await;
        stage.run::<()>(stage.on("SET", key).arg("no such thing")).await;
        for action in [Action::Cancel, Action::Delete] {
            let matching = Target::Matching { filter: filter(), limit: 10, cursor: None };
            let mut targets = vec![matching];
            if key != "j" {
                targets.push(Target::Tasks(vec![id.clone()]));
            }
            for target in targets {
                let params = ChangeParams { target, action, only_in: vec![], by: None };
                expect_named(
                    &store.change(params).await.unwrap_err(),
                    &format!("{key}: {action:?}"),
                );
            }
        }
        if matches!(key, "d" | "j") {
            let params = ListParams { filter: filter(), limit: 10, cursor: None };
            expect_named(&store.list(params).await.unwrap_err(), key);
        }
        if key == "d" {
            let params = GetParams { ids: vec![id.clone()], parts: Parts::ALL };
            expect_named(&store.get(params).await.unwrap_err(), key);
        }
    }
}
