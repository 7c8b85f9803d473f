//! News between processes: `NOTIFY` as a hint, gathered and sent at most every few milliseconds, and
//! polling beneath it, so that a hint that is lost costs a moment and nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use windlass_core::{QueueName, Result, WorkerId};

use super::Shared;
use super::options::PostgresOptions;
use super::session::{Purpose, Session};
use super::sql;
use crate::wakes::News;

/// Least time between two notifications of one process: commits with one wait for each other.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// Longest text of a notification, with some room.
const TEXT_MAX: usize = 7_000;
/// Time between two tries to listen.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is still to be told, and who listens.
#[derive(Default)]
pub(super) struct Herald {
    untold: Mutex<Untold>,
    listener: Mutex<Option<Listening>>,
}

#[derive(Default)]
struct Untold {
    lines: BTreeSet<String>,
    is_busy: bool,
}

struct Listening {
    task: AbortHandle,
    is_up: Arc<AtomicBool>,
}

impl Drop for Herald {
    fn drop(&mut self) {
        if let Some(listening) = self.listener.get_mut().take() {
            listening.task.abort();
        }
    }
}

impl Shared {
    /// Tells what a commit has brought: here at once, elsewhere in a moment.
    pub(super) fn tell(&self, news: News) {
        let lines = self.lines(&news);
        self.wakes.tell(news);
        if lines.is_empty() {
            return;
        }
        let mut untold = self.herald.untold.lock();
        untold.lines.extend(lines);
        if untold.is_busy {
            return;
        }
        let Some(shared) = self.this.upgrade() else { return };
        untold.is_busy = true;
        drop(untold);
        tokio::spawn(async move { shared.tell_others().await });
    }

    /// The text that notifies other processes of this as part of a statement; nothing where there is nobody to notify.
    pub(super) fn notification(&self, news: &News) -> Option<String> {
        let lines = self.lines(news);
        (!lines.is_empty()).then(|| format!("{}\n{}", self.name, lines.join("\n")))
    }

    /// What other processes are notified of, a line each.
    fn lines(&self, news: &News) -> Vec<String> {
        if !self.options.listens {
            return Vec::new();
        }
        // A broker wakes others by itself.
        let ready = news.ready.iter().filter(|_| self.options.is_looked_for());
        let mut lines: Vec<_> = ready.map(|queue| format!("q{queue}")).collect();
        lines.extend(news.ordered.iter().map(|worker| format!("w{worker}")));
        lines.extend(news.paused.iter().map(|queue| format!("p{queue}")));
        lines
    }

    /// Sends what is untold until nothing is.
    async fn tell_others(&self) {
        loop {
            let lines = {
                let mut untold = self.herald.untold.lock();
                if untold.lines.is_empty() {
                    untold.is_busy = false;
                    return;
                }
                std::mem::take(&mut untold.lines)
            };
            let mut text = self.name.clone();
            for line in &lines {
                text.push('\n');
                text.push_str(line);
            }
            if text.len() > TEXT_MAX {
                text = format!("{}\n*", self.name);
            }
            let sent = async {
                let session = self.telling.session().await?;
                session.all(sql::NOTIFY, &[&self.channel, &text]).await
            };
            if let Err(error) = sent.await {
                tracing::debug!(error = error.chain(), "others were not told; they will look");
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    /// Starts to listen, if nobody does yet.
    pub(super) fn listen(&self) {
        if !self.options.listens {
            return;
        }
        let mut listener = self.herald.listener.lock();
        if listener.as_ref().is_some_and(|listening| !listening.task.is_finished()) {
            return;
        }
        let is_up = Arc::default();
        let task = tokio::spawn(hear(self.this.clone(), Arc::clone(&is_up))).abort_handle();
        *listener = Some(Listening { task, is_up });
    }

    async fn listening_session(&self) -> Result<Arc<Session>> {
        let session = self.work.session().await?;
        session.listen(&self.channel).await?;
        Ok(session)
    }

    /// True while what others tell is heard.
    pub(super) fn is_listening(&self) -> bool {
        let listener = self.herald.listener.lock();
        listener.as_ref().is_some_and(|listening| listening.is_up.load(Relaxed))
    }

    /// Rings for what another process has told.
    fn heard(&self, text: &str) {
        let mut lines = text.lines();
        if lines.next() == Some(&self.name) {
            return;
        }
        let mut news = News::default();
        for line in lines {
            match line.split_at_checked(1) {
                Some(("q", queue)) => news.ready.push(QueueName::stored(queue)),
                Some(("w", worker)) => news.ordered.push(WorkerId::new(worker)),
                Some(("p", queue)) => news.paused.push(QueueName::stored(queue)),
                _ => {
                    self.options.outbox.iter().for_each(|outbox| outbox.heard());
                    return self.wakes.ring_all();
                }
            }
        }
        if let Some(outbox) = &self.options.outbox
            && !news.ready.is_empty()
        {
            outbox.heard();
        }
        self.wakes.tell(news);
    }
}

/// Wakes waiters of the store for each notification.
pub(super) fn notification_handler(this: &Weak<Shared>) -> impl Fn(&str) + Send + Sync + 'static {
    let this = this.clone();
    move |text| {
        if let Some(shared) = this.upgrade() {
            shared.heard(text);
        }
    }
}

/// Listens until the store is gone, on the connection for hot statements: an idle process of a fleet needs no
/// other for it.
async fn hear(shared: Weak<Shared>, is_up: Arc<AtomicBool>) {
    let mut pause = PAUSE_MIN;
    loop {
        let Some(store) = shared.upgrade() else { return };
        let listening = store.listening_session().await;
        match listening {
            Ok(session) => {
                is_up.store(true, Relaxed);
                pause = PAUSE_MIN;
                // Notifications that were sent before the LISTEN never arrive.
                store.wakes.ring_all();
                drop(store);
                session.ended().await;
                is_up.store(false, Relaxed);
            }
            Err(error) => {
                drop(store);
                tracing::debug!(error = error.chain(), "cannot listen; will look");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Hears a channel over a connection of its own, until that ends.
pub(super) async fn hear_channel(
    options: &PostgresOptions,
    channel: &str,
    begun: impl FnOnce(),
    heard: impl Fn(&str) + Send + 'static,
) -> Result<()> {
    let session = Session::connect(options, Purpose::News, heard).await?;
    session.listen(channel).await?;
    begun();
    session.ended().await;
    Ok(())
}
