//! Broadcasts: what is published reaches everyone who listens, or they learn that something is missing.

use windlass_core::ErrorKind;
use windlass_core::store::{BROADCAST_BYTES_MAX, Broadcast, BroadcastStream};

use crate::hearing::{hear, hear_all};
use crate::scene::Scene;

/// More than anyone may lag behind.
const MANY: usize = 3_000;

/// Hears a message, before it at most others that may have been on their way still between the nodes of a
/// Cluster: each once, in their order.
async fn hear_at_last(stream: &mut BroadcastStream, message: &str, earlier: &[&str]) {
    let mut earlier = earlier.iter();
    loop {
        match hear(stream).await {
            Broadcast::Said(told) if told == message => return,
            told => {
                let is_it = |one: &&str| told == Broadcast::Said((*one).to_owned());
                assert!(earlier.any(is_it), "{told:?} was never said, or before what came first");
            }
        }
    }
}

async fn say(s: &Scene, messages: &[&str]) {
    s.store.publish(messages.iter().map(|one| (*one).to_owned()).collect()).await.unwrap();
}

pub async fn messages_reach_all_who_listen_here_and_elsewhere_in_order(s: Scene) {
    let elsewhere = s.elsewhere().await;
    let mut streams = vec![
        s.store.subscribe().await.unwrap(),
        s.store.subscribe().await.unwrap(),
        elsewhere.store.subscribe().await.unwrap(),
    ];
    say(&s, &["one", "two", "two", "{\"three\":\n3}", "", "ü 'x' \"y\" \\"]).await;
    for stream in &mut streams {
        hear_all(stream, &["one", "two", "two", "{\"three\":\n3}", "", "ü 'x' \"y\" \\"]).await;
    }
    say(&elsewhere, &["back"]).await;
    for stream in &mut streams {
        hear_all(stream, &["back"]).await;
    }
}

pub async fn who_subscribes_later_hears_what_comes_then(s: Scene) {
    say(&s, &["to nobody"]).await;
    let mut first = s.store.subscribe().await.unwrap();
    say(&s, &["one"]).await;
    hear_at_last(&mut first, "one", &["to nobody"]).await;
    let mut second = s.store.subscribe().await.unwrap();
    say(&s, &["two"]).await;
    hear_all(&mut first, &["two"]).await;
    hear_all(&mut second, &["two"]).await;
    // After all are gone, too.
    drop((first, second));
    say(&s, &["to nobody again"]).await;
    let mut third = s.store.subscribe().await.unwrap();
    say(&s, &["three"]).await;
    hear_at_last(&mut third, "three", &["to nobody", "one", "two", "to nobody again"]).await;
}

pub async fn a_message_that_is_too_long_is_refused_with_all_others(s: Scene) {
    let mut stream = s.store.subscribe().await.unwrap();
    let (longest, too_long) =
        ("x".repeat(BROADCAST_BYTES_MAX), "x".repeat(BROADCAST_BYTES_MAX + 1));
    let refused = s.store.publish(vec!["good".into(), too_long]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    say(&s, &[&longest]).await;
    hear_all(&mut stream, &[&longest]).await;
}

pub async fn who_does_not_read_finds_a_gap_and_holds_up_nobody(s: Scene) {
    let mut lazy = s.store.subscribe().await.unwrap();
    let mut eager = s.store.subscribe().await.unwrap();
    for first in (0..MANY).step_by(100) {
        let some: Vec<_> = (first..first + 100).map(|number| number.to_string()).collect();
        s.store.publish(some.clone()).await.unwrap();
        hear_all(&mut eager, &some.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    assert_eq!(hear(&mut lazy).await, Broadcast::Gap);
    let mut last = None;
    while last != Some(MANY - 1) {
        match hear(&mut lazy).await {
            Broadcast::Said(text) => {
                let number = text.parse().unwrap();
                assert!(last.is_none_or(|last| number == last + 1), "{number} after {last:?}");
                last = Some(number);
            }
            Broadcast::Gap => panic!("it reads now"),
        }
    }
}
