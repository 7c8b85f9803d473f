//! Profile: what a store cannot do it says, in its capabilities and when asked.

use windlass_core::store::{Depth, Durability, Severity};
use windlass_core::{ErrorKind, State};

use crate::draft::draft;
use crate::scene::{LEASE, MS, SECOND, Scene};

pub async fn broadcasts_work_or_are_unsupported_as_the_profile_says(s: Scene) {
    let answers = [s.store.publish(Vec::new()).await, s.store.subscribe().await.map(drop)];
    for answer in answers {
        let refused = answer.err().map(|error| error.kind());
        match s.capabilities().has_broadcasts {
            true => assert_eq!(refused, None),
            false => assert_eq!(refused, Some(ErrorKind::Unsupported)),
        }
    }
}

pub async fn the_profile_names_the_store_and_its_limits(s: Scene) {
    let profile = s.store.profile();
    assert!(!profile.name.is_empty());
    assert!(profile.limits.payload_bytes_max >= 1024 * 1024);
    assert!(profile.capabilities.schedule_resolution >= MS);
    if let Durability::Window { loss } = &profile.durability {
        assert!(!loss.is_empty(), "a loss window is put in words");
    }
    assert_eq!(profile, s.store.profile(), "it does not change");
}

pub async fn a_ping_tells_the_stores_time_and_finds_no_problem(s: Scene) {
    let before = s.store.inspect(Depth::Ping).await.unwrap();
    assert!(before.is_writable());
    let problem = before.findings.iter().find(|found| found.severity == Severity::Problem);
    assert_eq!(problem, None);
    s.advance(SECOND);
    let after = s.elsewhere().await.now().await;
    assert_eq!(after.since(before.now), SECOND, "one clock for all");
}

pub async fn a_shared_store_shows_the_same_data_everywhere(s: Scene) {
    // A store that is not shared hands out itself: the same must hold then.
    let elsewhere = s.elsewhere().await;
    let id = s.submit(draft()).await;
    elsewhere.expect(&id, State::Pending, "submitted here").await;
    let worker = elsewhere.worker().await;
    let run = elsewhere.take(&worker, &id).await;
    assert_eq!(s.record(&id).await.worker, Some(worker));
    s.finish(&run, crate::scene::completed()).await;
    elsewhere.expect(&id, State::Completed, "ended here").await;
}

pub async fn a_dedicated_handle_beats_for_workers_of_the_store(s: Scene) {
    let run = s.start(draft()).await;
    let dedicated = s.store.dedicated().await.unwrap();
    s.advance(LEASE - MS);
    dedicated.beat(s.sign(&run.worker)).await.unwrap();
    s.advance(LEASE - MS);
    s.expire().await;
    s.expect(&run.id, State::Running, "its worker has beaten").await;
}
