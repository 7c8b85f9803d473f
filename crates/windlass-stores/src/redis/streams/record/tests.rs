//! Tests of `record.rs`: what is written reads back, and what cannot be read hurts only itself.

use bytes::Bytes;
use windlass_core::WorkerId;

use super::*;

fn head(state: u8, marks: u8) -> Head {
    Head {
        state,
        lane: Lane(3),
        is_cancel_requested: true,
        marks,
        revision: 770,
        created_at: Timestamp::from_millis(1_767_254_400_000),
        updated_at: Timestamp::from_millis(1_767_254_400_001),
        since_or_until: Timestamp::MAX,
        run_at: Some(Timestamp::from_millis(5)),
        submitted: (1_767_254_400_000_123, 199),
    }
}

fn run() -> LastRun {
    LastRun {
        entry: Entry { ms: 9, number: u64::MAX },
        claimed_at: Timestamp::from_millis(7),
        worker: WorkerId::new("wörker"),
        started_at: Some(Timestamp::from_millis(0)),
    }
}

fn body() -> Body {
    Body {
        once: Some([1; 16]),
        alone: Some([2; 16]),
        attempts: 3,
        crashes: u32::MAX,
        max_retries: 0,
        max_crashes: 127,
        timeout_ms: 128,
        retention_ms: u64::MAX,
        kind: "kind".into(),
        payload: Value::Here(Bytes::from_static(b"\0 \xff")),
        extras: Some(b"{}".to_vec()),
        idempotency_key: Some("key".into()),
        hold_ms: Some(0),
        run: Some(run()),
        applied: Some(Entry { ms: 1, number: 0 }),
        result: Value::Here(Bytes::new()),
        finished_at: Some(Timestamp::from_millis(1)),
        history: Some(vec![0xff]),
        unread: None,
    }
}

/// Writes a record behind an entry and reads it.
fn read_back(entry: &str, head: &Head, body: &Body) -> Record {
    let mut bytes = format!("{entry} ").into_bytes();
    head.write(&mut bytes);
    assert_eq!(bytes.len(), entry.len() + 1 + HEAD_BYTES);
    body.write(&mut bytes);
    Record::read(&bytes).unwrap()
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let (head, body) = (head(b'p', ONCE | TIMED), body());
    let record = read_back("12-3", &head, &body);
    assert_eq!(record.entry, Some(Entry { ms: 12, number: 3 }));
    assert_eq!((&record.head, &record.body), (&head, &body));
    assert_eq!(read_back("-", &head, &body).entry, None);
}

#[test]
fn a_small_record_has_nothing_beyond_what_every_task_has() {
    let head = head(b's', 0);
    let body = Body { payload: Value::Here(Bytes::new()), ..Body::default() };
    let mut bytes = Vec::new();
    body.write(&mut bytes);
    assert_eq!(bytes.len(), 9);
    assert_eq!(read_back("-", &head, &body).body, body);
}

#[test]
fn the_tail_of_a_success_tells_of_its_run() {
    let of_run = head(b'p', ONCE | TIMED);
    let before =
        Body { run: None, applied: None, result: Value::None, finished_at: None, ..body() };
    let worker = run().worker;
    let tail = Tail {
        attempts: 4,
        retention_ms: 60_000,
        took_ms: Some(2),
        claimed_at: run().claimed_at,
        worker: &worker,
        result: Some(b"out"),
    };
    // The script puts the times of the end in front; a time may look like a space.
    let front = b"+\0\0\0\0\x20\x05\0\0\0\0\x20\x20";
    let mut bytes = front.to_vec();
    bytes.extend(b"12-3 ");
    of_run.write(&mut bytes);
    before.write(&mut bytes);
    bytes.extend(tail.write());
    let record = Record::read(&bytes).unwrap();
    assert_eq!(record.entry, None, "it stands in no lane");
    assert_eq!(record.begins, bytes[..front.len() + b"12-3 ".len() + HEAD_BYTES]);
    assert_eq!((record.head.state, record.head.is_cancel_requested), (b'c', false));
    assert_eq!(record.head.updated_at, Timestamp::from_millis(0x2005));
    assert_eq!(record.head.since_or_until, Timestamp::from_millis(0x2020));
    let after = record.body;
    assert_eq!((after.attempts, after.retention_ms), (4, 60_000));
    assert_eq!(after.applied, Some(Entry { ms: 12, number: 3 }));
    assert_eq!(after.finished_at, Some(Timestamp::from_millis(0x2005)));
    assert_eq!(after.result, Value::Here(Bytes::from_static(b"out")));
    let started = after.run.unwrap().started_at;
    assert_eq!(started, Some(Timestamp::from_millis(0x2003)));
    bytes[0] = b'*';
    assert_eq!(Record::read(&bytes).unwrap().body.result, Value::Large);
}

#[test]
fn a_body_that_cannot_be_read_is_kept_as_it_is() {
    let head = head(b'p', 0);
    let broken = Body { unread: Some(b"\xff\xff\xff".to_vec()), ..Body::default() };
    let record = read_back("1-1", &head, &broken);
    assert_eq!(record.body, broken);
    assert!(record.write().ends_with(b"\xff\xff\xff"));
}

#[test]
fn no_cut_and_no_changed_byte_makes_reading_panic() {
    let mut plain = b"12-3 ".to_vec();
    head(b'c', ONCE | TIMED).write(&mut plain);
    body().write(&mut plain);
    let success = [b"+012345678901".as_slice(), &plain].concat();
    for bytes in [plain, success] {
        read_damaged(&bytes);
    }
}

fn read_damaged(bytes: &[u8]) {
    for at in 0..bytes.len() {
        let _ = Record::read(&bytes[..at]);
        for value in [0, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = value;
            let _ = Record::read(&changed);
        }
    }
}
