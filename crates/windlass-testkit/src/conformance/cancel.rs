//! Cancel: at once while a task waits, as a request while it runs, in every order with claim and
//! finish.

use windlass_core::store::{Applied, Changed, Filter};
use windlass_core::{Ending, State};

use crate::draft::draft;
use crate::scene::{LEASE, SECOND, Scene, completed, discarded, failed, snoozed};

const CANCELLED: Changed = Changed::Done(Some(State::Cancelled));

pub async fn a_waiting_task_is_cancelled_at_once_and_never_starts(s: Scene) {
    for state in State::WAITING {
        let id = s.bring(draft(), state).await;
        assert_eq!(s.cancel(&id).await, CANCELLED, "while {state}");
        let record = s.record(&id).await;
        assert_eq!(record.state, State::Cancelled);
        assert_eq!(record.finished_at, Some(s.now().await));
        assert!(!record.is_cancel_requested, "no run is waited for");
        s.advance(SECOND * 60);
        s.promote().await;
        let worker = s.worker().await;
        assert_eq!(s.claim(&worker, 9).await, [], "cancelled while {state}");
    }
}

pub async fn a_running_task_is_asked_to_stop_and_its_worker_is_told(s: Scene) {
    let run = s.start(draft()).await;
    let other = s.start(draft().queue("other")).await;
    assert_eq!(s.beat(&run.worker).await.cancels, []);
    assert_eq!(s.cancel(&run.id).await, Changed::Requested);
    let record = s.record(&run.id).await;
    assert_eq!(record.state, State::Running, "it runs until it ends");
    assert!(record.is_cancel_requested);
    for _ in 0..2 {
        let told = s.beat(&run.worker).await.cancels;
        assert_eq!(told, [run.lease()], "in every beat until it ends");
    }
    assert_eq!(s.beat(&other.worker).await.cancels, [], "no other worker");
    assert_eq!(s.cancel(&run.id).await, Changed::Requested, "again");
    s.finish(&run, Ending::Cancelled).await;
    assert_eq!(s.beat(&run.worker).await.cancels, [], "it has ended");
}

pub async fn a_cancel_request_outlives_the_handle_that_made_it(s: Scene) {
    let run = s.start(draft()).await;
    s.elsewhere().await.cancel(&run.id).await;
    let restarted = s.elsewhere().await;
    assert!(restarted.record(&run.id).await.is_cancel_requested);
    assert_eq!(restarted.beat(&run.worker).await.cancels, [run.lease()]);
    restarted.finish_as(&run, failed("boom"), State::Cancelled).await;
}

pub async fn under_a_cancel_request_only_success_is_not_cancelled(s: Scene) {
    let endings = [
        (completed(), State::Completed),
        (failed("boom"), State::Cancelled),
        (Ending::TimedOut, State::Cancelled),
        (discarded("no use"), State::Cancelled),
        (snoozed(5), State::Cancelled),
        (Ending::PutOff, State::Cancelled),
        (Ending::Released, State::Cancelled),
        (Ending::Cancelled, State::Cancelled),
        (Ending::DeadlinePassed { has_started: true }, State::Cancelled),
    ];
    for (number, (ending, state)) in endings.into_iter().enumerate() {
        let draft = draft().queue(&format!("under-{number}")).max_retries(0);
        let run = s.start(draft).await;
        s.cancel(&run.id).await;
        s.finish_as(&run, ending.clone(), state).await;
        let record = s.record(&run.id).await;
        assert_eq!(record.state, state, "{ending:?}");
        assert!(record.finished_at.is_some(), "{ending:?} is an end");
        assert!(!record.is_cancel_requested, "{ending:?} settles it");
        s.advance(SECOND * 60);
        s.promote().await;
        s.expect(&run.id, state, "and it stays so").await;
    }
}

pub async fn a_success_under_a_cancel_request_keeps_its_result(s: Scene) {
    let run = s.start(draft()).await;
    s.cancel(&run.id).await;
    let result = Some("done anyway".into());
    let ending = Ending::Completed { result: result.clone() };
    s.finish_as(&run, ending, State::Completed).await;
    assert_eq!(s.record(&run.id).await.result, result);
}

/// The three steps in each of their six orders; a finish before the claim has no lease to name.
pub async fn cancel_claim_and_finish_in_every_order(s: Scene) {
    for ending in [completed(), failed("boom")] {
        let well = ending == completed();
        for order in ["KCF", "KFC", "CKF", "CFK", "FKC", "FCK"] {
            let id = s.submit(draft().queue(&format!("{order}-{well}"))).await;
            let worker = s.worker().await;
            let name = s.record(&id).await.queue;
            let (mut run, mut cancelled) = (None, None);
            for step in order.chars() {
                match step {
                    'K' => cancelled = Some(s.cancel(&id).await),
                    'C' => run = s.claim_from(&worker, &[name.as_str()], 1).await.pop(),
                    _ => {
                        if let Some(run) = &run {
                            let transition = s.transition(run, ending.clone());
                            let outcome = s.apply(&worker, vec![transition]).await[0];
                            assert!(matches!(outcome, Applied::Applied(_)), "{outcome:?}");
                        }
                    }
                }
            }
            let (cancelled, state) = (cancelled.unwrap(), s.state(&id).await);
            let expected = match (order, well) {
                ("KCF" | "KFC" | "FKC", _) => (CANCELLED, State::Cancelled),
                ("CKF", true) => (Changed::Requested, State::Completed),
                ("CKF", false) => (Changed::Requested, State::Cancelled),
                ("CFK", true) => (Changed::Conflict(State::Completed), State::Completed),
                ("CFK", false) => (CANCELLED, State::Cancelled),
                _ => (Changed::Requested, State::Running),
            };
            assert_eq!((cancelled, state), expected, "order {order}, {ending:?}");
            let was_given = run.is_some();
            assert_eq!(was_given, order.find('C') < order.find('K'), "{order}");
        }
    }
}

pub async fn a_cancel_and_a_claim_at_once_agree_on_who_was_first(s: Scene) {
    for round in 0..20 {
        let name = format!("race-{round}");
        let id = s.submit(draft().queue(&name)).await;
        let worker = s.worker().await;
        let (cancelling, claiming) = (s.clone(), s.elsewhere().await);
        let task = id.clone();
        let cancel = tokio::spawn(async move { cancelling.cancel(&task).await });
        let claim =
            tokio::spawn(async move { claiming.claim_from(&worker, &[&name], 1).await.len() });
        let outcome = (cancel.await.unwrap(), claim.await.unwrap());
        let state = s.state(&id).await;
        let agreed = matches!(
            (outcome, state),
            ((CANCELLED, 0), State::Cancelled) | ((Changed::Requested, 1), State::Running)
        );
        assert!(agreed, "cancel and claim were told {outcome:?}, now {state}");
    }
}

pub async fn a_cancel_and_a_failure_at_once_never_leave_a_retry(s: Scene) {
    for round in 0..20 {
        let run = s.start(draft().queue(&format!("race-{round}"))).await;
        let (cancelling, finishing) = (s.clone(), s.elsewhere().await);
        let (id, report) = (run.id.clone(), run.clone());
        let cancel = tokio::spawn(async move { cancelling.cancel(&id).await });
        let finish = tokio::spawn(async move { finishing.finish(&report, failed("boom")).await });
        let outcome = (cancel.await.unwrap(), finish.await.unwrap());
        s.expect(&run.id, State::Cancelled, &format!("{outcome:?}")).await;
    }
}

pub async fn a_rerun_forgets_the_cancel_request(s: Scene) {
    for (number, ending) in [failed("boom"), completed()].into_iter().enumerate() {
        let run = s.start(draft().queue(&format!("forget-{number}"))).await;
        s.cancel(&run.id).await;
        s.finish(&run, ending).await;
        s.rerun(&run.id).await;
        assert!(!s.record(&run.id).await.is_cancel_requested);
        let again = s.take(&run.worker, &run.id).await;
        assert!(!again.is_cancel_requested);
        assert_eq!(s.beat(&run.worker).await.cancels, []);
        s.finish_as(&again, failed("boom"), State::Retrying).await;
    }
}

pub async fn a_cancel_by_filter_counts_done_and_requested(s: Scene) {
    s.start(draft()).await;
    s.submit_many(3).await;
    s.submit(draft().after(SECOND * 60)).await;
    let kept = s.submit(draft().queue("kept")).await;
    let filter = Filter { queue: Some(crate::draft::queue("main")), ..Filter::default() };
    let reply = s.change_matching(filter, windlass_core::store::Action::Cancel, 2).await;
    assert_eq!((reply.changed_count, reply.requested_count), (5, 1));
    assert_eq!(s.count("main", State::Cancelled).await, 4);
    s.expect(&kept, State::Pending, "another queue").await;
    s.advance(LEASE * 2);
    s.expire().await;
    assert_eq!(s.count("main", State::Cancelled).await, 5);
}
