//! Records that nobody can read: each is logged with its id when its time comes, and stops no other task.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use windlass_core::State;
use windlass_testkit::draft::draft;
use windlass_testkit::scene::SECOND;

use crate::stage::{Stage, stored};

/// The values of all fields that were logged.
#[derive(Clone, Default)]
struct LoggedValues(Arc<Mutex<Vec<String>>>);

impl Visit for LoggedValues {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        self.0.lock().push(format!("{value:?}"));
    }
}

impl Subscriber for LoggedValues {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn an_unreadable_record_is_logged_by_id_when_its_time_comes() {
    let stage = Stage::new().await;
    let scene = &stage.scene;
    let damaged = scene.submit(draft().after(SECOND)).await;
    let sound = scene.submit(draft().after(SECOND)).await;
    stage.run::<()>(stage.on("HSET", "d").arg(&stored(&damaged)[..]).arg("?")).await;
    scene.advance(SECOND);
    let values = LoggedValues::default();
    let guard = tracing::subscriber::set_default(values.clone());
    let report = scene.promote().await;
    drop(guard);
    assert_eq!((report.done, report.skipped_bad), (1, 1));
    scene.expect(&sound, State::Pending, "its neighbour cannot be read").await;
    let logged = values.0.lock();
    assert!(logged.iter().any(|value| value.contains(damaged.as_str())), "{logged:?}");
}
