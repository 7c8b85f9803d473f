//! Bytes and texts come back as they were sent.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::store::{GetParams, Inserted, Parts};
use windlass_core::{Ending, State, Timestamp, When};

use crate::draft::{draft, held_for, until_finished};
use crate::scene::{HOUR, Scene, failed};

/// Payloads that careless stores change.
fn awkward() -> Vec<Bytes> {
    let every: Vec<u8> = (0..=255).collect();
    vec![
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from_static(b"a\0b\0"),
        Bytes::from_static(b"\xff\xfe\x80 not UTF-8 \xc3"),
        Bytes::from_static(b"{\"n\": 9007199254740993, \"f\": 1.0, \"s\": \"\\ud800\"}"),
        Bytes::from_static("{\"é\":\"\u{1f600}\",  \"b\":1 , \"b\":2}\r\n".as_bytes()),
        Bytes::from_static(b"'; DROP TABLE task; --"),
        Bytes::from(every),
    ]
}

pub async fn an_insert_answers_all_that_makes_the_record_that_is_stored(s: Scene) {
    let odd = Duration::new(1, 400_001);
    let soon = s.now().await.after(HOUR);
    let drafts = [
        draft(),
        draft().payload(vec![7; 70_000]),
        draft().after(HOUR),
        draft().after(odd),
        draft().after(Duration::ZERO),
        draft().when(When::At(soon)),
        draft().when(When::At(Timestamp::from_millis(1))),
        draft().idempotency("once").unique(held_for("for", odd)),
        draft().unique(until_finished("until")).after(HOUR),
        draft().queue("other").kind("else").max_retries(0).max_crashes(0),
        draft().but(|task| (task.spec.timeout, task.spec.retention) = (odd, odd)),
        draft().but(|task| task.spec.extras.deadline = Some(Timestamp::from_millis(0))),
        draft().but(|task| task.spec.extras.deadline = Some(Timestamp::from_millis(-2_000))),
        draft().but(|task| task.spec.extras.deadline = Some(Timestamp::from_millis(1_001))),
        draft().tag("a").tag("b").but(|task| {
            let extras = &mut task.spec.extras;
            extras.deadline = Some(soon);
            extras.limit_key = Some("limit".into());
            extras.metadata.insert("who".into(), "me".into());
            extras.traceparent = Some(format!("00-{:032x}-{:016x}-01", 7, 8));
        }),
    ];
    let mut tasks = Vec::new();
    for draft in drafts {
        tasks.push(s.make(draft).await);
    }
    // Together, and each by itself: ways into a store may be different.
    let (alone, together) = tasks.split_at(tasks.len() / 2);
    let mut answers = Vec::new();
    for task in alone {
        answers.extend(s.insert(vec![task.clone()]).await);
    }
    answers.extend(s.insert(together.to_vec()).await);
    for (task, answer) in tasks.iter().zip(&answers) {
        let created_at = answer.created_at().unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!(s.record(&task.id).await, task.clone().into_record(created_at), "{task:?}");
    }
    for answer in s.insert(tasks).await {
        assert!(answer.is_new() && answer.created_at().is_none(), "a repetition: {answer:?}");
    }
}

pub async fn payloads_come_back_byte_for_byte(s: Scene) {
    for payload in awkward() {
        let run = s.start(draft().payload(payload.clone())).await;
        assert_eq!(run.payload, payload, "as claimed");
        assert_eq!(s.record(&run.id).await.payload, payload, "as read");
        let seen = s.elsewhere().await.record(&run.id).await.payload;
        assert_eq!(seen, payload, "as read elsewhere");
    }
}

pub async fn results_come_back_byte_for_byte(s: Scene) {
    for payload in awkward() {
        let run = s.start(draft()).await;
        let result = Some(payload.clone());
        let ending = Ending::Completed { result: result.clone() };
        s.finish_as(&run, ending, State::Completed).await;
        assert_eq!(s.record(&run.id).await.result, result);
    }
    let run = s.start(draft()).await;
    let ending = Ending::Completed { result: None };
    s.finish_as(&run, ending, State::Completed).await;
    assert_eq!(s.record(&run.id).await.result, None, "nothing is nothing");
}

pub async fn the_largest_payload_and_result_come_back_byte_for_byte(s: Scene) {
    let limits = s.store.profile().limits;
    let large = |size: usize, salt: usize| -> Bytes {
        let byte = |at: usize| u8::try_from((at.wrapping_mul(31) ^ (at >> 8) ^ salt) & 0xff);
        (0..size).map(|at| byte(at).unwrap()).collect()
    };
    let payload = large(limits.payload_bytes_max, 1);
    let result = large(limits.result_bytes_max, 2);
    let run = s.start(draft().payload(payload.clone())).await;
    assert!(run.payload == payload, "the payload as claimed");
    let ending = Ending::Completed { result: Some(result.clone()) };
    s.finish_as(&run, ending, State::Completed).await;
    let record = s.record(&run.id).await;
    assert!(record.payload == payload, "the payload as read");
    assert!(record.result == Some(result), "the result as read");
}

/// Small and large: a store may keep the two in different places.
fn small_and_large() -> [Bytes; 2] {
    [Bytes::from_static(b"\0\xff keep"), Bytes::from(vec![0xa5; 70_000])]
}

pub async fn a_payload_survives_every_way_back_to_pending(s: Scene) {
    for payload in small_and_large() {
        let run = s.start(draft().payload(payload.clone())).await;
        s.finish(&run, failed("boom")).await;
        s.rerun(&run.id).await;
        let again = s.take(&run.worker, &run.id).await;
        assert!(again.payload == payload, "after a retry");
        s.lose_all_workers().await;
        let worker = s.worker().await;
        let again = s.take(&worker, &run.id).await;
        assert!(again.payload == payload, "after a crash");
        s.finish(&again, Ending::Cancelled).await;
        s.rerun(&run.id).await;
        let again = s.take(&worker, &run.id).await;
        assert!(again.payload == payload, "after a rerun");
        assert!(s.record(&run.id).await.payload == payload, "as read");
        s.finish(&again, failed("out of the next one's way")).await;
    }
}

pub async fn a_rerun_wipes_the_result_and_the_next_run_leaves_its_own(s: Scene) {
    let [small, large] = small_and_large();
    let run = s.start(draft().payload(large.clone())).await;
    let mut again = run.clone();
    for result in [Some(large.clone()), Some(small), None, Some(large.clone())] {
        let ending = Ending::Completed { result: result.clone() };
        s.finish_as(&again, ending, State::Completed).await;
        assert!(s.record(&run.id).await.result == result, "as completed");
        s.rerun(&run.id).await;
        let record = s.record(&run.id).await;
        assert!(record.result.is_none(), "it has not run yet");
        assert!(record.payload == large, "the payload stays");
        again = s.take(&run.worker, &run.id).await;
    }
}

pub async fn a_large_request_is_recognised_under_its_idempotency_key(s: Scene) {
    let [_, large] = small_and_large();
    let mut other = large.to_vec();
    other[69_999] = 0;
    let sent = draft().idempotency("once");
    let id = s.submit(sent.clone().payload(large.clone())).await;
    for (payload, same) in [(large, true), (other.into(), false)] {
        let (_, answer) = s.offer(sent.clone().payload(payload)).await;
        match answer {
            Inserted::Existing { id: first, is_same_request } => {
                assert_eq!((first, is_same_request), (id.clone(), same));
            }
            answer => panic!("the first task should be returned, not {answer:?}"),
        }
    }
}

pub async fn an_error_text_comes_back_as_it_was_said(s: Scene) {
    for error in ["", "a\0b", "zeile\r\n'\"\\ \u{1f600} \u{fffd}"] {
        let run = s.start(draft()).await;
        s.finish(&run, failed(error)).await;
        let history = s.record(&run.id).await.history;
        assert_eq!(history.last_error(), Some(error));
    }
}

pub async fn an_error_text_over_its_limit_is_cut_and_not_refused(s: Scene) {
    let most = s.store.profile().limits.error_bytes_max;
    let error = "é".repeat(most);
    let run = s.start(draft()).await;
    s.finish_as(&run, failed(&error), State::Retrying).await;
    let history = s.record(&run.id).await.history;
    let kept = history.last_error().expect("the beginning is kept");
    assert!(error.starts_with(kept), "it is a beginning of what was said");
    let bytes = kept.len();
    assert!((most - 3..=most).contains(&bytes), "{bytes} of {most} bytes");
}

pub async fn a_get_brings_only_the_parts_asked_for_and_keeps_the_order(s: Scene) {
    let run = s.start(draft().payload("in")).await;
    s.finish(&run, failed("boom")).await;
    s.rerun(&run.id).await;
    let again = s.take(&run.worker, &run.id).await;
    let ending = Ending::Completed { result: Some("out".into()) };
    s.finish_as(&again, ending, State::Completed).await;
    let other = s.submit(draft()).await;
    let nobody = windlass_core::TaskId::new("nobody");
    let ids = vec![other.clone(), nobody, run.id.clone(), other.clone()];
    let params = GetParams { ids, parts: Parts::NONE };
    let found = s.store.get(params).await.unwrap();
    let seen: Vec<_> = found.iter().map(|r| r.as_ref().map(|r| &r.id)).collect();
    assert_eq!(seen, [Some(&other), None, Some(&run.id), Some(&other)]);
    let bare = found[2].as_ref().unwrap();
    let parts = (bare.payload.len(), &bare.result, bare.history.entries());
    assert_eq!(parts, (0, &None, &[][..]), "nothing large was asked for");
    let full = s.record(&run.id).await;
    assert_eq!((&full.payload[..], full.result.as_deref()), (&b"in"[..], Some(&b"out"[..])));
    assert!(!full.history.entries().is_empty());
}
