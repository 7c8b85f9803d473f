//! Documents with compare-and-set.

use windlass_core::store::{DocQuery, Document, SaveDoc, Saved};

use crate::scene::{MS, Scene};

fn write(key: &str, expected: Option<u64>, body: &str) -> SaveDoc {
    SaveDoc { class: "setting".into(), key: key.into(), expected, body: Some(body.into()) }
}

fn remove(key: &str, expected: Option<u64>) -> SaveDoc {
    SaveDoc { body: None, ..write(key, expected, "") }
}

async fn save(s: &Scene, save: SaveDoc) -> Saved {
    s.store.save(save).await.unwrap()
}

async fn load(s: &Scene, key: &str) -> Option<Document> {
    let query = DocQuery::One { class: "setting".into(), key: key.into() };
    let mut found = s.store.load(query).await.unwrap();
    assert!(found.len() <= 1, "one was asked for: {found:?}");
    found.pop()
}

async fn check(s: &Scene, key: &str, version: u64, body: &str) {
    let found = load(s, key).await;
    let found = found.unwrap_or_else(|| panic!("{key} should be there"));
    assert_eq!((found.version, found.body.as_str()), (version, body));
    assert_eq!((found.class.as_str(), found.key.as_str()), ("setting", key));
}

pub async fn a_new_document_is_written_once_and_its_version_grows(s: Scene) {
    assert_eq!(load(&s, "a").await, None);
    assert_eq!(save(&s, write("a", None, "1")).await, Saved::Done(Some(1)));
    check(&s.elsewhere().await, "a", 1, "1").await;
    s.advance(MS);
    let now = s.now().await;
    assert_eq!(save(&s, write("a", Some(1), "2")).await, Saved::Done(Some(2)));
    check(&s, "a", 2, "2").await;
    assert_eq!(load(&s, "a").await.unwrap().updated_at, now);
}

pub async fn a_write_with_an_outdated_version_changes_nothing(s: Scene) {
    let missing = save(&s, write("a", Some(1), "x")).await;
    assert_eq!(missing, Saved::Outdated(None), "there is none");
    assert_eq!(load(&s, "a").await, None);
    save(&s, write("a", None, "1")).await;
    save(&s, write("a", Some(1), "2")).await;
    for expected in [None, Some(0), Some(1), Some(3)] {
        let answer = save(&s, write("a", expected, "stale")).await;
        assert_eq!(answer, Saved::Outdated(Some(2)), "expected {expected:?}");
        let answer = save(&s, remove("a", expected)).await;
        assert_eq!(answer, Saved::Outdated(Some(2)), "removing {expected:?}");
        check(&s, "a", 2, "2").await;
    }
}

pub async fn a_document_is_removed_under_its_version_only(s: Scene) {
    save(&s, write("a", None, "1")).await;
    assert_eq!(save(&s, remove("a", Some(1))).await, Saved::Done(None));
    assert_eq!(load(&s, "a").await, None);
    let answer = save(&s, write("a", Some(1), "2")).await;
    assert_eq!(answer, Saved::Outdated(None), "it is not there any more");
}

pub async fn of_many_writers_at_once_one_wins(s: Scene) {
    save(&s, write("a", None, "start")).await;
    let elsewhere = s.elsewhere().await;
    for version in 1..4 {
        let mut writing = Vec::new();
        for number in 0..16 {
            let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
            let document = write("a", Some(version), &format!("{number}"));
            writing.push(tokio::spawn(async move { (number, save(&scene, document).await) }));
        }
        let mut winners = Vec::new();
        for written in writing {
            match written.await.unwrap() {
                (number, Saved::Done(_)) => winners.push(number),
                (_, Saved::Outdated(seen)) => assert_eq!(seen, Some(version + 1)),
            }
        }
        assert_eq!(winners.len(), 1, "writers {winners:?} won");
        check(&s, "a", version + 1, &winners[0].to_string()).await;
    }
}

pub async fn documents_of_a_class_come_by_key_in_pages(s: Scene) {
    for key in ["b", "d", "a", "c", "é"] {
        save(&s, write(key, None, "{}")).await;
    }
    let other = SaveDoc { class: "token".into(), ..write("a", None, "{}") };
    save(&s, other).await;
    let page = async |after: Option<&str>, limit| -> Vec<String> {
        let query =
            DocQuery::Class { class: "setting".into(), after: after.map(String::from), limit };
        let found = s.store.load(query).await.unwrap();
        found.into_iter().map(|document| document.key).collect()
    };
    assert_eq!(page(None, 99).await, ["a", "b", "c", "d", "é"]);
    assert_eq!(page(None, 2).await, ["a", "b"]);
    assert_eq!(page(Some("b"), 2).await, ["c", "d"]);
    assert_eq!(page(Some("é"), 2).await, [""; 0]);
    assert_eq!(page(Some("bb"), 9).await, ["c", "d", "é"], "a key that is not there");
    assert_eq!(page(Some("0"), 1).await, ["a"], "a key before all");
}

pub async fn a_document_comes_back_letter_for_letter(s: Scene) {
    let body = "{ \"n\":9007199254740993,\n\t\"s\" : \"é \u{1f600} ' \\u0000\" , \"n\":1.0 }";
    save(&s, write("odd key 'é", None, body)).await;
    check(&s, "odd key 'é", 1, body).await;
}
