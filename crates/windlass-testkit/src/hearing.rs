//! Listening to what a store broadcasts.

use std::time::Duration;

use futures_util::StreamExt;
use windlass_core::Store;
use windlass_core::store::{Broadcast, BroadcastStream};

/// How long a message may take.
const SOON: Duration = Duration::from_secs(10);

/// The next message, or that one is missing.
pub async fn hear(stream: &mut BroadcastStream) -> Broadcast {
    let told = tokio::time::timeout(SOON, stream.next()).await;
    told.expect("something is told in time").expect("the stream does not end")
}

/// Hears these messages and no others, in this order.
pub async fn hear_all(stream: &mut BroadcastStream, expected: &[&str]) {
    for message in expected {
        assert_eq!(hear(stream).await, Broadcast::Said((*message).to_owned()));
    }
}

/// An outage is told as a gap, and what is published afterwards is heard again by the same stream.
pub async fn goes_on_after(store: &dyn Store, outage: impl Future<Output = ()>) {
    let mut stream = store.subscribe().await.unwrap();
    store.publish(vec!["before".into()]).await.unwrap();
    hear_all(&mut stream, &["before"]).await;
    outage.await;
    assert_eq!(hear(&mut stream).await, Broadcast::Gap);
    // The stream may find its way back later than others do: only what it hears counts.
    loop {
        drop(store.publish(vec!["after".into()]).await);
        let told = tokio::time::timeout(Duration::from_millis(100), stream.next()).await;
        match told.map(|told| told.expect("the stream does not end")) {
            Ok(Broadcast::Said(text)) => return assert_eq!(text, "after"),
            Ok(Broadcast::Gap) | Err(_) => {}
        }
    }
}
