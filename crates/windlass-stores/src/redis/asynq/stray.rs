//! Keys that nothing leads to: asynq's own scripts leave groups that nobody names, tasks that lie nowhere and
//! locks that nobody knows of. They are found by a walk through all keys, a piece at each tend.

use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};
use windlass_core::{QueueName, Result};

use super::tend::Found;
use super::{AT_ONCE, Shared, keys, scripts};
use crate::redis::error::strange;
use crate::redis::reply::next;

/// How many keys one tend goes through.
const KEYS_SCANNED: usize = 1_000;

impl Shared {
    /// Goes on with the walk; answers how much was put right. On a Cluster there is no walk: groups are found
    /// there that were named once.
    pub(super) async fn mend_strays(&self) -> Result<u64> {
        if self.options().is_cluster() {
            return Ok(0);
        }
        let mut mended = 0;
        for (queue, parts) in self.some_keys().await? {
            let mut found = Found::default();
            for piece in parts.chunks(AT_ONCE) {
                let call = scripts::STRAY
                    .on(&[self.stem(&queue)])
                    .arg(self.options().told_time())
                    .arg(piece);
                let mut reply = self.ask(call).await?.list()?;
                while let Ok(name) = next(&mut reply, "stray") {
                    let count = next(&mut reply, "stray")?.number()?;
                    found.add(name.text()?, count.unsigned_abs());
                }
            }
            found.log(&queue);
            mended += found.count();
        }
        Ok(mended)
    }

    /// The next keys of the walk by queue, each without the stem of its queue.
    async fn some_keys(&self) -> Result<BTreeMap<QueueName, Vec<String>>> {
        let from = *self.walk_cursor.lock();
        let prefix = self.options().key_prefix();
        let mut command = redis::cmd("SCAN");
        command.arg(from).arg("MATCH").arg(keys::all_of_queues(prefix));
        command.arg("COUNT").arg(KEYS_SCANNED);
        let value = self.fleet.link.command("walk through all keys", &command).await?;
        let (next_cursor, found) = <(u64, Vec<Value>)>::from_redis_value(value)
            .map_err(|_| strange("walk through all keys"))?;
        *self.walk_cursor.lock() = next_cursor;
        let mut by_queue: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for key in found {
            let Ok(key) = String::from_redis_value(key) else { continue };
            if let Some((queue, part)) = keys::read(prefix, &key) {
                by_queue.entry(queue).or_default().push(part.to_owned());
            }
        }
        Ok(by_queue)
    }
}
