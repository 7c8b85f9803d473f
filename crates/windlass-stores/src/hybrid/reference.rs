//! References as a broker holds them: `queue:lane:position:lo:size`.

use crate::postgres::outbox::Reference;

/// Writes a reference.
pub(super) fn write(reference: &Reference) -> String {
    let Reference { queue, lane, position, lo, hi } = reference;
    let size = hi - lo + 1;
    format!("{queue}:{lane}:{position}:{lo}:{size}")
}

/// Reads a reference; nothing for what is none.
pub(super) fn read(text: &str) -> Option<Reference> {
    let mut parts = text.split(':');
    let mut next = || parts.next()?.parse::<i64>().ok();
    let (queue, lane, position, lo, size) = (next()?, next()?, next()?, next()?, next()?);
    let is_whole = parts.next().is_none() && size > 0;
    is_whole.then_some(Reference {
        queue: i32::try_from(queue).ok()?,
        lane: i16::try_from(lane).ok()?,
        position,
        lo,
        hi: lo.checked_add(size - 1)?,
    })
}

/// How many tasks a reference leads to, as far as it knows.
pub(super) fn size(reference: &Reference) -> usize {
    usize::try_from(reference.hi - reference.lo + 1).unwrap_or(1)
}

/// What is left over of a reference that someone has taken, and has not come back yet, as a broker calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest(pub(super) String);

impl Rest {
    /// The number of its queue.
    pub(super) fn queue(&self) -> Option<i32> {
        self.0.split(':').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_as_it_was_written() {
        let reference =
            Reference { queue: 7, lane: 3, position: 12, lo: 1 << 40, hi: (1 << 40) + 99 };
        assert_eq!(write(&reference), "7:3:12:1099511627776:100");
        assert_eq!(read(&write(&reference)), Some(reference));
        assert_eq!(size(&reference), 100);
    }

    #[test]
    fn what_is_no_reference_is_not_read() {
        for text in
            ["", "1:2:3:4", "1:2:3:4:5:6", "1:2:3:4:0", "a:2:3:4:5", "1:2:3:4:9223372036854775807"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
