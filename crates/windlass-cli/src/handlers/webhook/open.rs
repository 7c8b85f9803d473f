//! A run whose target has answered 202: it stays open until someone reports its end by `POST /results`, it is
//! cancelled, or its time is over.

use std::time::Duration;

use windlass::core::store::WaitParams;
use windlass::{Context, Failure, State, cancelled, snooze};

/// How often it is looked whether the run was ended otherwise than by the end of its task.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// While the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// What this run says when another has spoken for it already; the store knows better, and drops it.
const UNHEARD: Duration = Duration::from_secs(1);

/// Ends when the run has been ended by someone else, or should stop. The engine ends it when its time is over.
pub(super) async fn until_ended(cx: &Context<()>) -> Failure {
    tokio::select! {
        () = cx.cancelled() => cancelled(),
        () = ended_elsewhere(cx) => snooze(UNHEARD),
    }
}

async fn ended_elsewhere(cx: &Context<()>) {
    let (client, id) = (cx.client(), cx.task_id());
    loop {
        // Wakes at once when the task is finished; a run that is retried or snoozed is found by looking.
        let tasks = vec![id.clone()];
        let params = WaitParams { tasks, at_most: LOOK_EVERY, ..WaitParams::default() };
        let waited = client.store().wait(params).await;
        match client.glance(id).await {
            Ok(None) => return,
            Ok(Some(task)) if task.state != State::Running || task.epoch != Some(cx.epoch()) => {
                return;
            }
            Ok(Some(_)) if waited.is_ok() => {}
            Ok(Some(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
