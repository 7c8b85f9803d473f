//! Which tasks that somebody waits for have ended: one look-up for all who wait in this process, on one
//! connection, which is idle for most of the time however many wait.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use windlass_core::store::IdlePoll;
use windlass_core::{Error, ErrorKind, Result, TaskId};

/// Tasks in one query.
const TOGETHER_MAX: usize = 1_000;
/// How much longer than a look-up the pause behind it is: what many wait for must not cost the server more
/// than a part of one core.
const REST: u32 = 4;
/// Waits that look so seldom do it at the same moments, and so in one query.
const GRID: Duration = Duration::from_millis(250);

type Answer = Result<Arc<HashSet<TaskId>>>;

/// Look-ups that wait for the next query.
#[derive(Default)]
pub(super) struct EndLookups(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    tasks: HashSet<TaskId>,
    callers: Vec<oneshot::Sender<Answer>>,
    is_busy: bool,
}

impl EndLookups {
    /// Which of these tasks have ended. `look_up` answers those of a list; it is called for many callers
    /// at once, by one of them, in a task of its own.
    pub(super) async fn ended<T, F>(
        &self,
        tasks: Vec<TaskId>,
        owner: Arc<T>,
        look_up: impl Fn(Arc<T>, Vec<TaskId>) -> F + Send + 'static,
    ) -> Result<Vec<TaskId>>
    where
        T: AsRef<Self> + Send + Sync + 'static,
        F: Future<Output = Result<Vec<TaskId>>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let is_first = {
            let mut gathered = self.0.lock();
            gathered.tasks.extend(tasks.iter().cloned());
            gathered.callers.push(answer);
            !std::mem::replace(&mut gathered.is_busy, true)
        };
        if is_first {
            let turn = Turn(owner);
            tokio::spawn(async move { turn.look_up_all(look_up).await });
        }
        let ended = answered.await.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "look up which tasks have ended").because(cause)
        })??;
        Ok(tasks.into_iter().filter(|task| ended.contains(task)).collect())
    }
}

/// Whose turn it is to look up. Dropped early, with its runtime, it lets those who wait ask again.
struct Turn<T: AsRef<EndLookups>>(Arc<T>);

impl<T: AsRef<EndLookups> + Send + Sync> Turn<T> {
    /// Looks up what has gathered until nothing is left.
    async fn look_up_all<F>(self, look_up: impl Fn(Arc<T>, Vec<TaskId>) -> F)
    where
        F: Future<Output = Result<Vec<TaskId>>>,
    {
        loop {
            // Those who ask at the same moment come along.
            tokio::task::yield_now().await;
            let (tasks, callers) = {
                let mut gathered = (*self.0).as_ref().0.lock();
                if gathered.callers.is_empty() {
                    gathered.is_busy = false;
                    return;
                }
                (std::mem::take(&mut gathered.tasks), std::mem::take(&mut gathered.callers))
            };
            let began = Instant::now();
            let tasks: Vec<_> = tasks.into_iter().collect();
            let mut answer = Ok(HashSet::new());
            for piece in tasks.chunks(TOGETHER_MAX) {
                match (look_up(Arc::clone(&self.0), piece.to_vec()).await, &mut answer) {
                    (Ok(ended), Ok(all)) => all.extend(ended),
                    (Err(error), _) => {
                        answer = Err(error);
                        break;
                    }
                    (Ok(_), Err(_)) => break,
                }
            }
            let answer = answer.map(Arc::new);
            for caller in callers {
                // Whoever has given up needs no answer.
                let _ = caller.send(answer.clone());
            }
            tokio::time::sleep(began.elapsed() * REST).await;
        }
    }
}

impl<T: AsRef<EndLookups>> Drop for Turn<T> {
    fn drop(&mut self) {
        let mut gathered = (*self.0).as_ref().0.lock();
        if gathered.is_busy {
            *gathered = Gathered::default();
        }
    }
}

/// How long a wait for the end of tasks pauses after so many looks, in a store that was opened so long ago.
pub(super) fn pause(looks: u32, open_for: Duration) -> Duration {
    let pause = IdlePoll::default().pause(looks, fastrand::f64());
    if pause < GRID {
        return pause;
    }
    let at = (open_for + pause).as_millis().div_ceil(GRID.as_millis()) * GRID.as_millis();
    let at = Duration::from_millis(u64::try_from(at).unwrap_or(u64::MAX));
    at.saturating_sub(open_for)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Ledger {
        lookups: EndLookups,
        queries: AtomicUsize,
    }

    impl AsRef<EndLookups> for Ledger {
        fn as_ref(&self) -> &EndLookups {
            &self.lookups
        }
    }

    async fn look_up(ledger: Arc<Ledger>, tasks: Vec<TaskId>) -> Result<Vec<TaskId>> {
        ledger.queries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if tasks.iter().any(|task| task.as_str() == "bad") {
            return Err(Error::new(ErrorKind::Unavailable, "away"));
        }
        Ok(tasks.into_iter().filter(|task| task.as_str().ends_with('7')).collect())
    }

    async fn ended(ledger: &Arc<Ledger>, id: String) -> Result<Vec<TaskId>> {
        let tasks = vec![TaskId::new(id)];
        ledger.lookups.ended(tasks, Arc::clone(ledger), look_up).await
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_who_wait_share_a_few_queries() {
        let ledger = Arc::new(Ledger::default());
        let asked = (0..4_000).map(|number| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move { ended(&ledger, format!("task-{number}")).await })
        });
        let mut ended_count = 0;
        for asked in asked.collect::<Vec<_>>() {
            ended_count += asked.await.unwrap().unwrap().len();
        }
        assert_eq!(ended_count, 400);
        let queries = ledger.queries.load(Ordering::Relaxed);
        assert!((4..=8).contains(&queries), "{queries} queries");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_error_the_next_are_answered() {
        let ledger = Arc::new(Ledger::default());
        assert!(ended(&ledger, "bad".into()).await.unwrap_err().is_unavailable());
        assert_eq!(ended(&ledger, "task-7".into()).await.unwrap(), [TaskId::new("task-7")]);
        assert!(ended(&ledger, "task-8".into()).await.unwrap().is_empty());
    }

    #[test]
    fn a_turn_that_ends_with_its_runtime_is_taken_over() {
        let ledger = Arc::new(Ledger::default());
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first = runtime();
        first.block_on(async {
            let asked = tokio::time::timeout(Duration::ZERO, ended(&ledger, "task-7".into())).await;
            assert!(asked.is_err(), "given up at once");
        });
        drop(first);
        let ended = runtime().block_on(ended(&ledger, "task-7".into())).unwrap();
        assert_eq!(ended.len(), 1);
    }

    #[test]
    fn those_who_look_seldom_look_at_the_same_moments() {
        let moments = (0..500).map(|number| {
            let open_for = Duration::from_micros(number * 1_999);
            open_for + pause(40, open_for)
        });
        let moments: HashSet<_> = moments.collect();
        assert!(moments.len() <= 10, "{} moments", moments.len());
        assert!(pause(0, Duration::from_secs(9)) < Duration::from_millis(11), "soon at first");
    }
}
