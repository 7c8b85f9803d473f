//! How numbers, times and texts are packed.

use windlass_core::{Timestamp, WorkerId};

use crate::redis::streams::epoch::Entry;

pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(super) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_number(bytes, value.len() as u64);
    bytes.extend(value);
}

pub(super) fn put_entry(bytes: &mut Vec<u8>, entry: Entry) {
    put_number(bytes, entry.ms);
    put_number(bytes, entry.number);
}

/// Takes packed values off the front of bytes; nothing where they do not fit.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub(super) fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp::from_millis(i64::try_from(self.number()?).ok()?))
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        let (value, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(value)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    pub(super) fn worker(&mut self) -> Option<WorkerId> {
        std::str::from_utf8(self.bytes()?).ok().map(WorkerId::new)
    }

    pub(super) fn array(&mut self) -> Option<[u8; 16]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }

    pub(super) fn entry(&mut self) -> Option<Entry> {
        Some(Entry { ms: self.number()?, number: self.number()? })
    }
}
