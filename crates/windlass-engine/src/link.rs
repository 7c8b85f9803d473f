//! How this process stands to its store: what leading and looking after it take, with a worker or
//! without one. What only a worker has is in `station.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use windlass_core::config::Config;
use windlass_core::{Clock, Store, Timestamp, WorkerId};

use crate::client::Client;
use crate::contact::Contact;

pub(crate) struct Link {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) contact: Arc<Contact>,
    /// Under which name this process leads. It stays when its worker goes on under another id: the
    /// term is then still ours, instead of in the way until it has run out.
    pub(crate) holder: WorkerId,
    pub(crate) client: Client,
    wall: Arc<dyn Clock>,
    /// How far the store's clock is ahead of ours, in ms.
    clock_lead_ms: AtomicI64,
}

impl Link {
    pub(crate) fn new(client: Client, wall: Arc<dyn Clock>, holder: WorkerId) -> Arc<Self> {
        let gap_max = client.config().worker.heartbeat;
        Arc::new(Self {
            store: Arc::clone(client.watched()),
            contact: Arc::new(Contact::new(Arc::clone(&wall), gap_max)),
            holder,
            client,
            wall,
            clock_lead_ms: AtomicI64::new(0),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        self.client.config()
    }

    /// The store's clock, as far as we know.
    pub(crate) fn store_now(&self) -> Timestamp {
        let lead = self.clock_lead_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(self.wall.now().as_millis() + lead)
    }

    pub(crate) fn heard_time(&self, store_now: Timestamp) {
        let lead = store_now.as_millis() - self.wall.now().as_millis();
        self.clock_lead_ms.store(lead, Ordering::Relaxed);
    }
}
