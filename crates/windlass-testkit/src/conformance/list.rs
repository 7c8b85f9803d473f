//! Lists: filters, order, and cursors that hold while tasks come and go.

use std::collections::BTreeSet;

use windlass_core::store::{Filter, ListOrder, ListParams};
use windlass_core::{ErrorKind, Priority, State, TaskId};

use crate::draft::{draft, kind, queue};
use crate::scene::{HOUR, MS, SECOND, Scene, completed, failed};

async fn ids(s: &Scene, filter: Filter) -> BTreeSet<TaskId> {
    let listed: Vec<_> = s.list(filter.clone()).await;
    let distinct: BTreeSet<_> = listed.iter().map(|record| record.id.clone()).collect();
    assert_eq!(distinct.len(), listed.len(), "a task came twice: {filter:?}");
    distinct
}

fn set(ids: &[&TaskId]) -> BTreeSet<TaskId> {
    ids.iter().copied().cloned().collect()
}

pub async fn a_list_shows_every_task_once_in_its_order(s: Scene) {
    let mut submitted = Vec::new();
    for number in 0..30 {
        s.advance(MS * (number % 3));
        submitted.push(s.submit(draft()).await);
    }
    let listed = s.list(Filter::default()).await;
    match s.capabilities().list_order {
        ListOrder::NewestFirst | ListOrder::NewestReserved => {
            submitted.reverse();
            let seen: Vec<_> = listed.iter().map(|record| record.id.clone()).collect();
            assert_eq!(seen, submitted, "the last submitted first");
        }
        ListOrder::StateByState => {
            let states: Vec<_> = listed.iter().map(|record| record.state).collect();
            let mut runs = states.clone();
            runs.dedup();
            let distinct: BTreeSet<_> = states.iter().collect();
            assert_eq!(runs.len(), distinct.len(), "one state after the other");
            assert_eq!(listed.len(), submitted.len());
        }
    }
}

pub async fn a_list_leaves_out_what_may_be_large(s: Scene) {
    let run = s.start(draft().payload("large").tag("kept")).await;
    s.finish(&run, failed("boom")).await;
    let mut expected = s.record(&run.id).await;
    expected.payload = Default::default();
    expected.result = None;
    expected.history = Default::default();
    assert_eq!(s.list(Filter::default()).await, [expected]);
}

pub async fn each_part_of_a_filter_narrows_a_list(s: Scene) {
    let has_priorities = s.capabilities().has_priorities;
    let plain = s.bring(draft(), State::Completed).await;
    s.advance(SECOND);
    let start = s.now().await;
    let tagged = s.submit(draft().queue("q").tag("red").tag("blue")).await;
    let sorted = s.submit(draft().queue("q").kind("sort")).await;
    s.advance(SECOND);
    let later = s.now().await;
    let urgent = if has_priorities { Priority::High } else { Priority::Normal };
    let pressed = s.submit(draft().priority(urgent).after(HOUR)).await;
    let blue = Some("blue".parse().unwrap());
    let cases = [
        (Filter::default(), set(&[&plain, &tagged, &sorted, &pressed])),
        (Filter { states: vec![State::Pending], ..Filter::default() }, set(&[&tagged, &sorted])),
        (
            Filter { states: vec![State::Completed, State::Scheduled], ..Filter::default() },
            set(&[&plain, &pressed]),
        ),
        (Filter { queue: Some(queue("q")), ..Filter::default() }, set(&[&tagged, &sorted])),
        (Filter { kind: Some(kind("sort")), ..Filter::default() }, set(&[&sorted])),
        (Filter { tag: blue.clone(), ..Filter::default() }, set(&[&tagged])),
        (Filter { tag: Some("bl".parse().unwrap()), ..Filter::default() }, set(&[])),
        (
            Filter { created_after: Some(start), ..Filter::default() },
            set(&[&tagged, &sorted, &pressed]),
        ),
        (Filter { created_before: Some(start), ..Filter::default() }, set(&[&plain])),
        (
            Filter { created_after: Some(start), created_before: Some(later), ..Filter::default() },
            set(&[&tagged, &sorted]),
        ),
        (Filter { finished_before: Some(start), ..Filter::default() }, set(&[&plain])),
        (Filter { finished_before: Some(start.before(SECOND)), ..Filter::default() }, set(&[])),
        (
            Filter {
                queue: Some(queue("q")),
                kind: Some(kind("work")),
                states: vec![State::Pending],
                tag: blue,
                ..Filter::default()
            },
            set(&[&tagged]),
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(ids(&s, filter.clone()).await, expected, "{filter:?}");
    }
    if has_priorities {
        let filter = Filter { priority: Some(Priority::High), ..Filter::default() };
        assert_eq!(ids(&s, filter).await, set(&[&pressed]), "by priority");
    }
}

/// Stores look for rare states along another way, which must not forget a part of the filter.
pub async fn each_part_of_a_filter_narrows_a_list_in_every_state(s: Scene) {
    let has_priorities = s.capabilities().has_priorities;
    let urgent = if has_priorities { Priority::High } else { Priority::Normal };
    for state in State::ALL {
        let name = format!("marked-{state}");
        let plain = s.bring(draft().queue(&format!("plain-{state}")).tag("blue"), state).await;
        s.advance(SECOND);
        let start = s.now().await;
        let marked = draft().queue(&name).kind("sort").tag("red").priority(urgent);
        let marked = s.bring(marked, state).await;
        let (only_plain, only_marked) = (set(&[&plain]), set(&[&marked]));
        let of_state = Filter { states: vec![state], ..Filter::default() };
        let ended = |ids: &[&TaskId]| if state.is_terminal() { set(ids) } else { set(&[]) };
        let cases = [
            (of_state.clone(), set(&[&plain, &marked])),
            (Filter { queue: Some(queue(&name)), ..of_state.clone() }, only_marked.clone()),
            (Filter { kind: Some(kind("sort")), ..of_state.clone() }, only_marked.clone()),
            (Filter { tag: Some("red".parse().unwrap()), ..of_state.clone() }, only_marked.clone()),
            (Filter { created_after: Some(start), ..of_state.clone() }, only_marked.clone()),
            (Filter { created_before: Some(start), ..of_state.clone() }, only_plain),
            (Filter { finished_before: Some(start), ..of_state.clone() }, ended(&[&plain])),
            (
                Filter { finished_before: Some(start.after(MS)), ..of_state.clone() },
                ended(&[&plain, &marked]),
            ),
        ];
        for (filter, expected) in cases {
            assert_eq!(ids(&s, filter.clone()).await, expected, "{filter:?}");
        }
        if has_priorities {
            let filter = Filter { priority: Some(Priority::High), ..of_state };
            assert_eq!(ids(&s, filter).await, only_marked, "{state} by priority");
        }
    }
}

/// Walks a list in pages of three; between the pages tasks come, go and change.
pub async fn a_walk_shows_each_task_once_while_others_come_and_go(s: Scene) {
    let stay = s.submit_many(20).await;
    let go = s.submit_many(20).await;
    let more = s.submit_many(20).await;
    let lasting: BTreeSet<_> = stay.iter().chain(&more).cloned().collect();
    let mut going = go.into_iter();
    check_walk(&s, Filter::default(), &lasting, async |s, page| {
        s.submit_many(2).await;
        for id in going.by_ref().take(2) {
            s.delete(&id).await;
        }
        if page % 2 == 0 {
            s.advance(MS);
        }
    })
    .await;
}

pub async fn a_walk_shows_each_task_once_although_it_deletes_what_it_has_seen(s: Scene) {
    let ids = s.submit_many(20).await;
    let mut params = page_of(Filter::default());
    let mut seen = BTreeSet::new();
    loop {
        let page = s.store.list(params.clone()).await.unwrap();
        for record in page.tasks {
            let again = !seen.insert(record.id.clone());
            assert!(!again, "task {} came twice", record.id);
            s.delete(&record.id).await;
        }
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids.into_iter().collect());
}

/// More than a store looks at for one page.
pub async fn a_walk_over_very_many_tasks_shows_each_once(s: Scene) {
    let submitted: BTreeSet<_> = s.submit_many(10_007).await.into_iter().collect();
    let filter = Filter { kind: Some(kind("work")), ..Filter::default() };
    let mut params = ListParams { limit: 20_000, ..page_of(filter) };
    let mut seen = Vec::new();
    loop {
        let page = s.store.list(params.clone()).await.unwrap();
        seen.extend(page.tasks.into_iter().map(|record| record.id));
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            break;
        }
    }
    let count = seen.len();
    assert!(seen.into_iter().collect::<BTreeSet<_>>() == submitted, "the walk missed a task");
    assert_eq!(count, submitted.len(), "a task came twice");
}

pub async fn a_walk_by_state_shows_what_stays_in_it_while_others_leave_it(s: Scene) {
    let stay = s.submit_all(vec![draft().queue("stay"); 12]).await;
    s.submit_all(vec![draft().queue("leave"); 12]).await;
    let more = s.submit_all(vec![draft().queue("stay"); 12]).await;
    let lasting: BTreeSet<_> = stay.into_iter().chain(more).collect();
    let worker = s.worker().await;
    let filter = Filter { states: vec![State::Pending], ..Filter::default() };
    check_walk(&s, filter, &lasting, async |s, _| {
        for task in s.claim_from(&worker, &["leave"], 2).await {
            let transition = s.transition(&task, completed());
            s.apply(&worker, vec![transition]).await;
        }
    })
    .await;
}

pub async fn a_walk_by_a_waiting_or_finished_state_shows_what_stays_in_it(s: Scene) {
    for state in [State::Scheduled, State::DeadLetter, State::Cancelled] {
        let mut lasting = BTreeSet::new();
        let mut leaving = Vec::new();
        for number in 0..14 {
            let id = s.bring(draft().queue(state.as_str()), state).await;
            match number % 3 {
                0 => leaving.push(id),
                _ => drop(lasting.insert(id)),
            }
        }
        let filter =
            Filter { states: vec![state], queue: Some(queue(state.as_str())), ..Filter::default() };
        let mut leaving = leaving.into_iter();
        check_walk(&s, filter, &lasting, async |s, _| {
            for id in leaving.by_ref().take(1) {
                s.rerun(&id).await;
            }
        })
        .await;
    }
}

/// Follows the cursors to the end, disturbing the list after each page; every lasting task must
/// come exactly once, and nothing twice.
async fn check_walk(
    s: &Scene,
    filter: Filter,
    lasting: &BTreeSet<TaskId>,
    mut disturb: impl AsyncFnMut(&Scene, usize),
) {
    let mut params = page_of(filter);
    let mut seen = BTreeSet::new();
    for number in 0..1_000 {
        let page = s.store.list(params.clone()).await.unwrap();
        for record in page.tasks {
            let again = !seen.insert(record.id.clone());
            assert!(!again, "task {} came twice", record.id);
        }
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            let missed: Vec<_> = lasting.difference(&seen).collect();
            assert!(missed.is_empty(), "the walk missed {missed:?}");
            return;
        }
        disturb(s, number).await;
    }
    panic!("the walk does not come to an end");
}

fn page_of(filter: Filter) -> ListParams {
    ListParams { filter, limit: 3, cursor: None }
}

pub async fn a_cursor_that_the_store_did_not_make_is_invalid(s: Scene) {
    s.submit_many(3).await;
    let params =
        ListParams { cursor: Some("\u{1f600} not a cursor".into()), ..page_of(Filter::default()) };
    let error = s.store.list(params).await.expect_err("a made-up cursor");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
}

pub async fn a_cursor_can_be_pasted_into_a_url(s: Scene) {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    for state in [State::Pending, State::Scheduled, State::Completed] {
        // Names of queues may have these; ends of cursors often have a name.
        let name = format!("q.a:b-{}", state.as_str());
        for _ in 0..4 {
            s.bring(draft().queue(&name), state).await;
        }
    }
    let mut params = page_of(Filter::default());
    let mut count = 0;
    while let Some(cursor) = s.store.list(params.clone()).await.unwrap().next_cursor {
        assert!(cursor.chars().all(is_plain), "{cursor}");
        params.cursor = Some(cursor);
        count += 1;
    }
    assert!(count > 1, "the list should have several pages");
}
