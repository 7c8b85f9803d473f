//! Leadership: one leader at a time, terms that only grow, and upkeep that stale leaders cannot do.

use std::time::Duration;

use windlass_core::store::{Duty, DutyReport, Leadership, Term};
use windlass_core::{ErrorKind, Reason, Result, State, WorkerId};

use crate::draft::{RETENTION, draft};
use crate::scene::{LEASE, MS, SECOND, Scene};

/// A little longer than a term lasts.
const LAPSE: Duration = SECOND.saturating_mul(11);

/// Checks that somebody does not lead; answers how long a bid would be in vain.
#[track_caller]
fn check_following(answer: &Leadership, expected: Option<&str>) -> Duration {
    let Leadership::Following { leader, bid_after } = answer else { panic!("{answer:?}") };
    assert_eq!(leader.as_ref().map(WorkerId::as_str), expected);
    *bid_after
}

pub async fn only_one_leads_at_a_time(s: Scene) {
    let term = s.lead_as("first").await;
    let elsewhere = s.elsewhere().await;
    check_following(&elsewhere.seek("second").await, Some("first"));
    s.advance(SECOND * 9);
    check_following(&elsewhere.seek("second").await, Some("first"));
    assert_eq!(s.renew(term).await, Leadership::Leading(term));
    s.advance(SECOND * 9);
    check_following(&elsewhere.seek("second").await, Some("first"));
}

pub async fn of_many_that_seek_at_once_one_leads(s: Scene) {
    let elsewhere = s.elsewhere().await;
    let mut seeking = Vec::new();
    for number in 0..16 {
        let scene = if number % 2 == 0 { &s } else { &elsewhere }.clone();
        seeking.push(tokio::spawn(async move { scene.seek(&format!("candidate-{number}")).await }));
    }
    let mut leading = 0;
    for sought in seeking {
        leading += u32::from(matches!(sought.await.unwrap(), Leadership::Leading(_)));
    }
    assert_eq!(leading, 1, "leaders");
}

pub async fn followers_learn_when_a_bid_can_succeed(s: Scene) {
    let term = s.lead_as("first").await;
    let elsewhere = s.elsewhere().await;
    let fresh = check_following(&elsewhere.seek("second").await, Some("first"));
    assert!(fresh <= SECOND * 10, "{fresh:?} is longer than a term");
    s.advance(SECOND * 6);
    let later = check_following(&elsewhere.seek("second").await, Some("first"));
    assert!(later <= fresh - SECOND * 6, "{later:?} left, {fresh:?} before");
    s.renew(term).await;
    let renewed = check_following(&elsewhere.seek("second").await, Some("first"));
    assert!(renewed > later, "{renewed:?} after a renewal, {later:?} before");
    assert_eq!(check_following(&s.resign(term).await, None), Duration::ZERO);
    elsewhere.lead_as("second").await;
}

pub async fn a_holder_that_seeks_again_gets_its_term_again(s: Scene) {
    let term = s.lead_as("first").await;
    assert_eq!(s.lead_as("first").await, term);
    assert_eq!(s.elsewhere().await.lead_as("first").await, term);
}

pub async fn terms_grow_with_every_new_holding(s: Scene) {
    let mut last = Term(0);
    for holder in ["a", "a", "b", "a", "a"] {
        for by_resigning in [true, false] {
            let term = s.elsewhere().await.lead_as(holder).await;
            assert!(term > last, "term {term} of {holder} follows {last}");
            last = term;
            if by_resigning {
                s.resign(term).await;
            } else {
                s.advance(LAPSE);
            }
        }
    }
}

pub async fn terms_grow_also_after_upkeep_has_cleaned_up(s: Scene) {
    let first = s.duty().await.term;
    s.advance(SECOND * 7_200);
    s.tend().await;
    s.advance(LAPSE);
    let last = s.lead_as("leader").await;
    s.resign(last).await;
    let next = s.lead_as("other").await;
    assert!(first < last && last < next, "{first} {last} {next}");
}

pub async fn a_renewal_keeps_the_term(s: Scene) {
    let term = s.lead_as("first").await;
    for _ in 0..5 {
        s.advance(SECOND * 9);
        assert_eq!(s.renew(term).await, Leadership::Leading(term));
    }
}

pub async fn a_renewal_after_the_term_has_run_out_is_refused(s: Scene) {
    let term = s.lead_as("first").await;
    s.advance(LAPSE);
    let refused = s.renew(term).await;
    check_following(&refused, None);
    let next = s.lead_as("second").await;
    check_following(&s.renew(term).await, Some("second"));
    assert!(next > term, "term {next} follows {term}");
}

pub async fn a_renewal_of_a_resigned_term_is_refused(s: Scene) {
    let term = s.lead_as("first").await;
    s.resign(term).await;
    let refused = s.renew(term).await;
    check_following(&refused, None);
}

pub async fn a_resignation_lets_another_lead_at_once(s: Scene) {
    let term = s.lead_as("first").await;
    let answer = s.resign(term).await;
    check_following(&answer, None);
    assert!(s.lead_as("second").await > term);
}

pub async fn a_stale_resignation_or_renewal_does_not_touch_the_new_leader(s: Scene) {
    let old = s.lead_as("first").await;
    s.advance(LAPSE);
    let new = s.lead_as("second").await;
    check_following(&s.resign(old).await, Some("second"));
    check_following(&s.renew(old).await, Some("second"));
    check_following(&s.seek("first").await, Some("second"));
    assert_eq!(s.renew(new).await, Leadership::Leading(new));
}

/// The paused leader wakes up after another has taken over; one for each of its duties.
pub async fn a_promote_in_a_stale_term_is_refused(s: Scene) {
    let (old, new) = paused_leader(&s).await;
    let id = s.submit(draft().after(SECOND)).await;
    s.advance(SECOND * 2);
    check_stale(s.store.promote(old).await, "promote");
    s.expect(&id, State::Scheduled, "a stale leader did it").await;
    assert_eq!(s.store.promote(new).await.unwrap().done, 1);
}

pub async fn an_expire_in_a_stale_term_is_refused(s: Scene) {
    let (old, new) = paused_leader(&s).await;
    let run = s.start(draft()).await;
    s.advance(LEASE + MS);
    check_stale(s.store.expire(old).await, "expire");
    let record = s.record(&run.id).await;
    assert_eq!((record.state, record.crashes), (State::Running, 0));
    s.beat(&run.worker).await;
    s.advance(LEASE + MS);
    assert_eq!(s.store.expire(new).await.unwrap().done, 1);
}

pub async fn a_prune_in_a_stale_term_is_refused(s: Scene) {
    s.bring(draft(), State::Completed).await;
    s.advance(RETENTION);
    let (old, new) = paused_leader(&s).await;
    check_stale(s.store.prune(old).await, "prune");
    assert_eq!(s.store.prune(new).await.unwrap().done, 1, "still there");
}

pub async fn a_tend_in_a_stale_term_is_refused(s: Scene) {
    let (old, new) = paused_leader(&s).await;
    check_stale(s.store.tend(old).await, "tend");
    s.store.tend(new).await.unwrap();
}

pub async fn a_stale_term_stays_stale_after_its_successor_is_gone(s: Scene) {
    let (old, new) = paused_leader(&s).await;
    s.store.promote(new).await.unwrap();
    s.resign(new.term).await;
    check_stale(s.store.promote(old).await, "promote after a resignation");
    s.advance(LAPSE);
    check_stale(s.elsewhere().await.store.expire(old).await, "expire later");
}

pub async fn upkeep_in_a_higher_term_makes_every_lower_one_stale(s: Scene) {
    let duty = s.duty().await;
    let higher = Duty { term: Term(duty.term.0 + 1_000), ..duty };
    s.store.promote(higher).await.unwrap();
    check_stale(s.store.promote(duty).await, "promote");
    check_stale(s.elsewhere().await.store.prune(duty).await, "prune elsewhere");
    s.advance(LAPSE);
    assert!(s.lead_as("next").await > higher.term, "terms grow from there");
}

/// An old leader that was paused past its term, and the one that took over.
async fn paused_leader(s: &Scene) -> (Duty, Duty) {
    let old = s.lead_as("old").await;
    s.advance(LAPSE);
    let new = s.lead_as("new").await;
    let duty = |term| Duty { term, limit: 1_000 };
    (duty(old), duty(new))
}

fn check_stale(answer: Result<DutyReport>, what: &str) {
    match answer {
        Err(error) => assert_eq!(
            (error.kind(), error.reason()),
            (ErrorKind::LeaseLost, Reason::StaleTerm),
            "{what} in a stale term: {error:?}"
        ),
        Ok(report) => panic!("{what} in a stale term was accepted: {report:?}"),
    }
}
