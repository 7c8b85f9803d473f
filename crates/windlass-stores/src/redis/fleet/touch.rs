//! Which queues were written in lately: writers announce it, leaders read it, so that idle queues cost them nothing.

use redis::{FromRedisValue, Value};
use windlass_core::{QueueName, Result};

use super::{FORGET_QUEUE, Fleet, TOUCH, keys};
use crate::redis::error::strange;

/// What was touched since a number was read.
pub(in crate::redis) struct Touched {
    pub(in crate::redis) queues: Vec<QueueName>,
    /// The highest number that there is.
    pub(in crate::redis) last: u64,
}

impl Fleet {
    /// Puts queues on record, and notes that something is about to be written in them.
    pub(in crate::redis) async fn touch(&self, queues: &[QueueName]) -> Result<()> {
        let mut call = self.on(&TOUCH);
        for queue in queues {
            call.add(queue.as_str());
        }
        self.ask(call).await.map(drop)
    }

    /// Takes a queue off the record, unless it was touched after a number; answers whether that was done.
    pub(in crate::redis) async fn forget_queue(
        &self,
        queue: &QueueName,
        number: u64,
    ) -> Result<bool> {
        let call = self.on(&FORGET_QUEUE).arg(queue.as_str()).arg(number);
        self.ask(call).await.map(|reply| reply.is_number(1))
    }

    /// Reads what was touched after a number.
    pub(in crate::redis) async fn touched_since(&self, number: u64) -> Result<Touched> {
        let key = keys::touched(self.stem());
        let mut since = redis::cmd("ZRANGEBYSCORE");
        since.arg(&key).arg(format!("({number}")).arg("+inf");
        let mut last = redis::cmd("ZREVRANGE");
        last.arg(&key).arg(0).arg(0).arg("WITHSCORES");
        // The number first: what is touched between the two is read again the next time.
        let last = self.link.command(WHAT, &last);
        let since = self.link.command(WHAT, &since);
        let (last, since) = futures_util::future::try_join(last, since).await?;
        let names = Vec::<String>::from_redis_value(since).map_err(|_| strange(WHAT))?;
        Ok(Touched {
            queues: names
                .iter()
                .filter(|name| *name != NO_QUEUE)
                .map(|name| QueueName::stored(name))
                .collect(),
            last: read_last(last)?,
        })
    }
}

/// What has the number of a queue that was forgotten; no queue can be called so.
const NO_QUEUE: &str = "~";
const WHAT: &str = "read which queues were touched";

fn read_last(value: Value) -> Result<u64> {
    let pairs = Vec::<(String, String)>::from_redis_value(value).map_err(|_| strange(WHAT))?;
    pairs.first().map_or(Ok(0), |(_, number)| number.parse().map_err(|_| strange(WHAT)))
}
