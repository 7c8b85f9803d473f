//! Broadcasts by `NOTIFY`, on a channel and over a connection of their own: nobody is woken by them who
//! does not listen.

use std::sync::Arc;

use windlass_core::store::BroadcastStream;
use windlass_core::{Error, Result};

use super::Shared;
use super::news::hear_channel;
use super::options::PostgresOptions;
use super::sql;
use crate::broadcasts::Ear;

impl Shared {
    pub(super) async fn publish(&self, messages: &[String]) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let session = self.telling.session().await?;
        session.all(sql::PUBLISH, &[&self.broadcast_channel(), &messages]).await.map(drop)
    }

    pub(super) async fn hear_broadcasts(&self) -> Result<BroadcastStream> {
        let (options, channel) = (Arc::clone(&self.options), self.broadcast_channel());
        self.broadcasts.hear(move |ear| hear(Arc::clone(&options), channel.clone(), ear)).await
    }

    fn broadcast_channel(&self) -> String {
        format!("{}_broadcast", self.channel)
    }
}

impl PostgresOptions {
    /// Refuses where nobody can listen.
    pub(super) fn can_broadcast(&self) -> Result<()> {
        match self.listens {
            true => Ok(()),
            false => Err(Error::unsupported("broadcasts through a pooler in postgres")),
        }
    }
}

/// Hears until the connection ends.
async fn hear(options: Arc<PostgresOptions>, channel: String, ear: Ear) -> Result<()> {
    let begun = ear.clone();
    let heard = move |text: &str| {
        // Behind the number that sets it apart.
        if let Some((_, message)) = text.split_once('\n') {
            ear.say(message.to_owned());
        }
    };
    hear_channel(&options, &channel, move || begun.begin(), heard).await
}
