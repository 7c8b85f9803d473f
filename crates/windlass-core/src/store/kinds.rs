//! The kinds that a worker handles, as its card lists them. Pure; how workers use it is in the engine.

use serde::{Deserialize, Deserializer, Serialize};

use crate::name::Kind;

/// Most kinds that a card lists by name, and their bytes; longer lists are kept as hashes.
pub const NAMED_KINDS_MAX: usize = 100;
const NAMED_BYTES_MAX: usize = 4 * 1024;
/// Most kinds that a card lists at all: a worker of more counts as one that handles every kind.
const KINDS_MAX: usize = 1_000;

/// A sorted list of kinds: by name, or by a hash of the name where the list is long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum HandledKinds {
    /// Their names.
    Named(Vec<Kind>),
    /// 32-bit hashes of their names.
    Hashed(Vec<u32>),
}

/// A stored list. A form that this version does not know counts as every kind.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Named(Vec<Kind>),
    Hashed(Vec<u32>),
    Other(serde::de::IgnoredAny),
}

impl HandledKinds {
    /// The list for a card; nothing, which means every kind, where there are too many.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Option<Self> {
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let bytes: usize = kinds.iter().map(|kind| kind.as_str().len()).sum();
        if kinds.len() > KINDS_MAX {
            return None;
        }
        if kinds.len() <= NAMED_KINDS_MAX && bytes <= NAMED_BYTES_MAX {
            return Some(Self::Named(kinds));
        }
        Some(Self::hashed(kinds.iter().map(hash).collect()))
    }

    /// True for a kind of the list. For a list of hashes the answer is wrong for about one kind in four million.
    pub fn handles(&self, kind: &Kind) -> bool {
        match self {
            Self::Named(kinds) => kinds.binary_search(kind).is_ok(),
            Self::Hashed(hashes) => hashes.binary_search(&hash(kind)).is_ok(),
        }
    }

    /// The names, where they are known.
    pub fn names(&self) -> Option<&[Kind]> {
        match self {
            Self::Named(kinds) => Some(kinds),
            Self::Hashed(_) => None,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Named(kinds) => kinds.len(),
            Self::Hashed(hashes) => hashes.len(),
        }
    }

    fn hashed(mut hashes: Vec<u32>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        Self::Hashed(hashes)
    }
}

/// Reads the list of a stored card.
pub(super) fn read_stored<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<HandledKinds>, D::Error> {
    Ok(match Option::<Stored>::deserialize(deserializer)? {
        Some(Stored::Named(mut kinds)) => {
            // Looked up by bisection: another program may have written it in another order.
            kinds.sort_unstable();
            Some(HandledKinds::Named(kinds))
        }
        Some(Stored::Hashed(hashes)) => Some(HandledKinds::hashed(hashes)),
        Some(Stored::Other(_)) | None => None,
    })
}

/// FNV-1a: the same in every version, since workers of different versions compare it.
fn hash(kind: &Kind) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    kind.as_str().bytes().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::WorkerCard;

    fn kind(name: &str) -> Kind {
        Kind::stored(name)
    }

    fn card_of(json: &str) -> WorkerCard {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn long_lists_are_kept_as_hashes_and_very_long_ones_as_every_kind() {
        let list = |count: usize, length: usize| {
            HandledKinds::new((0..count).map(|n| kind(&format!("{n:0length$}"))))
        };
        assert!(matches!(list(100, 3), Some(HandledKinds::Named(_))));
        assert!(matches!(list(101, 3), Some(HandledKinds::Hashed(_))));
        assert!(matches!(list(100, 100), Some(HandledKinds::Hashed(_))), "too many bytes");
        assert_eq!(list(1_000, 4).map(|kinds| kinds.count()), Some(1_000));
        assert_eq!(list(1_001, 4), None);
    }

    #[test]
    fn a_card_that_lists_no_kinds_handles_every_kind() {
        for json in ["{}", r#"{"kinds":null}"#, r#"{"kinds":{"later":1}}"#, r#"{"kinds":"x"}"#] {
            assert!(card_of(json).handles(&kind("any")), "{json}");
        }
        assert!(!card_of(r#"{"kinds":[]}"#).handles(&kind("any")));
        let unsorted = card_of(r#"{"kinds":["c","a","b"]}"#);
        assert!(["a", "b", "c"].iter().all(|name| unsorted.handles(&kind(name))));
        assert!(!unsorted.handles(&kind("d")));
    }

    #[test]
    fn the_hash_of_a_kind_never_changes() {
        assert_eq!(hash(&kind("email.send")), 0x14bd_a46d);
        assert_eq!(hash(&kind("a")), 0xe40c_292c);
    }

    proptest! {
        /// Whatever the list: a card that was stored and read again handles just the kinds of the list.
        #[test]
        fn a_stored_card_handles_what_was_listed(
            names in proptest::collection::vec("[a-z]{1,60}", 0..300), other in "[a-z]{61}",
        ) {
            let kinds = HandledKinds::new(names.iter().map(|name| kind(name)));
            let card = WorkerCard { kinds, ..WorkerCard::default() };
            let read = card_of(&serde_json::to_string(&card).unwrap());
            prop_assert_eq!(&read, &card);
            prop_assert!(names.iter().all(|name| read.handles(&kind(name))));
            prop_assert!(!read.handles(&kind(&other)));
            let bytes = serde_json::to_string(&read.kinds).unwrap().len();
            prop_assert!(bytes <= 12 * 1024, "{} bytes", bytes);
        }
    }
}
