//! Documents.

use windlass_core::statistics::{RAW, Step};
use windlass_core::store::{AUDIT, DocQuery, Document, Finding, SaveDoc, Saved};
use windlass_core::{Result, Timestamp};

use super::{DAMAGE, Fleet, LOAD, SAVE};
use crate::redis::error::strange;
use crate::redis::reply::next;
use crate::redis::troubles::read_damage;

/// The classes of stored documents, except those of statistics.
const CLASSES: [&str; 3] = [AUDIT, "listener", "token"];

impl Fleet {
    /// The keys of documents that have a wrong type.
    pub(in crate::redis) async fn find_damage(&self) -> Result<Vec<Finding>> {
        let mut call = self.on(&DAMAGE);
        let statistics = Step::ALL.into_iter().map(Step::class).chain([RAW]);
        statistics.chain(CLASSES).for_each(|class| call.add(class));
        read_damage("the fleet", self.ask(call).await?)
    }

    pub(in crate::redis) async fn load(&self, query: &DocQuery) -> Result<Vec<Document>> {
        let call = self.on(&LOAD);
        let (call, class) = match query {
            DocQuery::One { class, key } => (call.arg(class).arg("one").arg(key), class),
            DocQuery::Class { class, after, limit } => {
                let after = after.as_deref().unwrap_or_default();
                (call.arg(class).arg("after").arg(after).arg(*limit), class)
            }
        };
        let mut parts = self.ask(call).await?.list()?;
        let mut documents = Vec::new();
        while let Some(key) = parts.next() {
            let key = key.text()?;
            let stored = next(&mut parts, "load")?.bytes()?;
            let (times, body) = stored.split_first_chunk::<12>().ok_or_else(|| strange("load"))?;
            let number = |at: usize| {
                times[at..at + 6].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            documents.push(Document {
                class: class.clone(),
                key,
                version: number(0),
                body: String::from_utf8(body.to_vec()).map_err(|_| strange("load"))?,
                updated_at: Timestamp::from_millis(number(6).cast_signed()),
            });
        }
        Ok(documents)
    }

    pub(in crate::redis) async fn save(&self, save: &SaveDoc) -> Result<Saved> {
        let call = self
            .on(&SAVE)
            .arg(&save.class)
            .arg(&save.key)
            .arg(save.expected.map_or(-1, u64::cast_signed))
            .arg(u8::from(save.body.is_some()))
            .arg(save.body.as_deref().unwrap_or_default());
        let mut parts = self.ask(call).await?.list()?;
        let is_done = next(&mut parts, "save")?.number()? == 1;
        let version = next(&mut parts, "save")?.number()?.unsigned_abs();
        let version = (version > 0).then_some(version);
        Ok(if is_done { Saved::Done(version) } else { Saved::Outdated(version) })
    }
}
