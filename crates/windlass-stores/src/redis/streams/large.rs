//! Large payloads and results: kept beside the records, and fetched in pieces of a bounded size, so that
//! neither the server nor this process holds more than one of them at once.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use redis::Value;
use windlass_core::store::Parts;
use windlass_core::{QueueName, Result};

use super::id::Id;
use super::record::{LARGE_IN, LARGE_OUT};
use super::row::Row;
use super::{AT_ONCE, Shared, keys, scripts};
use crate::redis::error::{in_queue, strange};

/// Most bytes that one answer may bring, unless a single value is larger.
const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Which of its two large values is meant, as the last byte of its field.
pub(super) const PAYLOAD: u8 = b'p';
pub(super) const RESULT: u8 = b'r';

/// Large values by task and sort.
pub(super) type Values = HashMap<(Id, u8), Bytes>;

impl Shared {
    /// The large values of these rows that are asked for; what is not there is left out.
    pub(super) async fn large_values_of(&self, rows: &[Row], parts: Parts) -> Result<Values> {
        let mut by_queue: HashMap<&QueueName, Vec<(Id, u8)>> = HashMap::new();
        for row in rows {
            let marks = row.record.head.marks;
            let sorts = [
                (PAYLOAD, parts.payload && marks & LARGE_IN > 0),
                (RESULT, parts.result && marks & LARGE_OUT > 0),
            ];
            for (sort, _) in sorts.into_iter().filter(|(_, is_wanted)| *is_wanted) {
                by_queue.entry(&row.queue).or_default().push((row.id, sort));
            }
        }
        let mut values = Values::new();
        for (queue, wanted) in by_queue {
            let found = self.large_values(queue, &wanted).await?;
            let pairs = wanted.into_iter().zip(found);
            values.extend(pairs.filter_map(|(named, value)| Some((named, value?))));
        }
        Ok(values)
    }

    /// Large values of one queue, in the order asked for.
    pub(super) async fn large_values(
        &self,
        queue: &QueueName,
        wanted: &[(Id, u8)],
    ) -> Result<Vec<Option<Bytes>>> {
        let limits = &self.options().limits;
        let longest = limits.payload_bytes_max.max(limits.result_bytes_max) as u64;
        let mut values = Vec::with_capacity(wanted.len());
        // Few enough fit whatever their size.
        if (wanted.len() as u64).saturating_mul(longest) <= ANSWER_BYTES_MAX {
            values.extend(self.fetch(queue, wanted).await?);
            return Ok(values);
        }
        for chunk in wanted.chunks(AT_ONCE) {
            for piece in pieces(&self.sizes(queue, chunk).await?) {
                values.extend(self.fetch(queue, &chunk[piece]).await?);
            }
        }
        Ok(values)
    }

    async fn sizes(&self, queue: &QueueName, wanted: &[(Id, u8)]) -> Result<Vec<u64>> {
        let mut call = scripts::SIZES.on(&[self.stem(queue)]).arg(self.options().told_time());
        wanted.iter().for_each(|named| call.add(field(named)));
        let sizes: Vec<u64> = self
            .ask_queue(queue, call)
            .await?
            .list()?
            .map(|size| size.number().map(i64::unsigned_abs))
            .collect::<Result<_>>()?;
        if sizes.len() == wanted.len() { Ok(sizes) } else { Err(strange("sizes")) }
    }

    async fn fetch(&self, queue: &QueueName, wanted: &[(Id, u8)]) -> Result<Vec<Option<Bytes>>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(keys::large(&self.stem(queue)));
        wanted.iter().for_each(|named| {
            command.arg(field(named));
        });
        let read = |value: Value| match value {
            Value::BulkString(bytes) => Ok(Some(Bytes::from(bytes))),
            Value::Nil => Ok(None),
            _ => Err(strange("read large values")),
        };
        let value = self.fleet.link.command("read large values", &command).await;
        match value.map_err(|error| in_queue(queue, error))? {
            Value::Array(values) if values.len() == wanted.len() => {
                values.into_iter().map(read).collect()
            }
            _ => Err(strange("read large values")),
        }
    }
}

/// The field under which a large value is kept.
fn field((id, sort): &(Id, u8)) -> Vec<u8> {
    let mut field = id.0.to_vec();
    field.push(*sort);
    field
}

/// Cuts values of these sizes into pieces that each fit into one answer.
fn pieces(sizes: &[u64]) -> Vec<Range<usize>> {
    let (mut pieces, mut from, mut sum) = (Vec::new(), 0, 0);
    for (at, size) in sizes.iter().enumerate() {
        if at > from && sum + size > ANSWER_BYTES_MAX {
            pieces.push(from..at);
            (from, sum) = (at, 0);
        }
        sum += size;
    }
    pieces.push(from..sizes.len());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// How many values each answer brings.
    fn counts(sizes: &[u64]) -> Vec<usize> {
        pieces(sizes).iter().map(ExactSizeIterator::len).collect()
    }

    #[test]
    fn an_answer_is_no_larger_than_it_may_be() {
        assert_eq!(counts(&[]), [0]);
        assert_eq!(counts(&[MIB; 8]), [8]);
        assert_eq!(counts(&[MIB; 9]), [8, 1]);
        assert_eq!(counts(&[2_000; 200]), [200]);
        assert_eq!(counts(&[1, 99 * MIB, 1]), [1, 1, 1], "one that is too large goes alone");
    }
}
