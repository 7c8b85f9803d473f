//! Broadcasts by Pub/Sub, over a connection of their own.

use std::sync::Arc;

use windlass_core::Result;
use windlass_core::store::BroadcastStream;

use super::{Fleet, PUBLISH, keys};
use crate::broadcasts::{self, Ear};
use crate::redis::error::classify;
use crate::redis::news::hear_channels;
use crate::redis::options::RedisOptions;
use crate::redis::waiting::Channels;

impl Fleet {
    pub(in crate::redis) async fn publish(&self, messages: Vec<String>) -> Result<()> {
        broadcasts::check(&messages)?;
        if messages.is_empty() {
            return Ok(());
        }
        let mut call = self.on(&PUBLISH);
        messages.iter().for_each(|message| call.add(message));
        self.ask(call).await.map(drop)
    }

    pub(in crate::redis) async fn hear_broadcasts(&self) -> Result<BroadcastStream> {
        let (options, channel) = (Arc::clone(&self.common.options), keys::broadcasts(self.stem()));
        let hear = move |ear| hear(Arc::clone(&options), channel.clone(), ear);
        self.common.broadcasts.hear(hear).await
    }
}

/// Hears until the connection ends.
async fn hear(options: Arc<RedisOptions>, channel: String, ear: Ear) -> Result<()> {
    let channels = Channels { names: vec![channel], patterns: Vec::new() };
    let heard = |_: &str, payload: &[u8]| ear.say(String::from_utf8_lossy(payload).into_owned());
    let hearing = hear_channels(&options, &channels, || ear.begin(), heard).await;
    hearing.map_err(|cause| classify("hear broadcasts", cause))
}
