//! Keeps a log readable while the same thing goes wrong again and again.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often the same thing is told.
const EVERY: Duration = Duration::from_secs(10);
/// Most things remembered; kinds of tasks are among them, which anyone may make up.
const REMEMBERED_MAX: usize = 100;

/// What was told lately.
#[derive(Default)]
pub(crate) struct Hush(Mutex<HashMap<String, Instant>>);

impl Hush {
    /// True when this was not told within the last moments; then it counts as told.
    pub(crate) fn allows(&self, what: &str) -> bool {
        let (mut told, now) = (self.0.lock(), Instant::now());
        if told.get(what).is_some_and(|at| now.duration_since(*at) < EVERY) {
            return false;
        }
        if told.len() >= REMEMBERED_MAX {
            told.retain(|_, at| now.duration_since(*at) < EVERY);
        }
        if told.len() < REMEMBERED_MAX {
            told.insert(what.to_owned(), now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_told_now_and_then() {
        let hush = Hush::default();
        assert!(hush.allows("a") && hush.allows("b"));
        assert!(!hush.allows("a"));
        tokio::time::advance(EVERY).await;
        assert!(hush.allows("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_make_up_does_not_fill_the_memory() {
        let hush = Hush::default();
        for number in 0..1_000 {
            hush.allows(&number.to_string());
        }
        assert_eq!(hush.0.lock().len(), REMEMBERED_MAX);
    }
}
