//! How this process stands to its store: what leading and looking after it take, with a worker or
//! without one. What only a worker has is in `station.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use windlass_core::config::Config;
use windlass_core::{Clock, Store, WorkerId};

use crate::client::Client;
use crate::contact::Contact;
use crate::store_clock::StoreClock;

pub(crate) struct Link {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) contact: Arc<Contact>,
    /// Under which name this process leads. It stays when its worker goes on under another id: the
    /// term is then still ours, instead of in the way until it has run out.
    pub(crate) holder: WorkerId,
    pub(crate) client: Client,
    pub(crate) clock: StoreClock,
    /// This process leads.
    pub(crate) is_leader: AtomicBool,
    /// There is something to report that should not wait for the next heartbeat.
    pub(crate) early_heartbeat: Notify,
}

impl Link {
    pub(crate) fn new(client: Client, wall: Arc<dyn Clock>, holder: WorkerId) -> Arc<Self> {
        let gap_max = client.config().worker.heartbeat;
        Arc::new(Self {
            store: Arc::clone(client.watched()),
            contact: Arc::new(Contact::new(Arc::clone(&wall), gap_max)),
            holder,
            client,
            clock: StoreClock::new(wall),
            is_leader: AtomicBool::new(false),
            early_heartbeat: Notify::new(),
        })
    }

    /// Notes whether this process leads; its worker reports it with the next heartbeat.
    pub(crate) fn note_leadership(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
    }

    pub(crate) fn config(&self) -> &Config {
        self.client.config()
    }
}
