//! Names that submitters choose: queues, kinds, tags. Strict on the way in, forgiving on the way out.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// True for `^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`.
///
/// Braces are left out on purpose: they would choose the hash slot on a Redis Cluster.
fn is_valid(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() <= NAME_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(b))
}

macro_rules! name {
    ($(#[$docs:meta])* $name:ident, $what:literal) => {
        $(#[$docs])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name that someone submits.
            pub fn new(name: &str) -> Result<Self> {
                if is_valid(name) {
                    return Ok(Self(name.into()));
                }
                Err(Error::invalid(format!(
                    concat!($what, " {:?}: use 1 to 128 letters, digits or _ . : - and start with a letter or digit"),
                    crate::limits::clip(name, NAME_BYTES_MAX),
                )))
            }

            /// Takes a name as it stands in a store, which may hold what other programs wrote.
            pub fn stored(name: &str) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(name: &str) -> Result<Self> {
                Self::new(name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                // What was stored once is never refused; submits go through `new`.
                String::deserialize(deserializer).map(|name| Self(name.into()))
            }
        }
    };
}

name!(
    /// Names a line of tasks.
    QueueName,
    "queue name"
);
name!(
    /// Names the handler of a task, e.g. `email.send`.
    Kind,
    "task type"
);
name!(
    /// A word attached to a task, to find it by.
    Tag,
    "tag"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, valid: bool) {
        assert_eq!(QueueName::new(name).is_ok(), valid, "{name:?}");
    }

    #[test]
    fn names_follow_the_documented_pattern() {
        check("mail", true);
        check("email.send:v2-a_b", true);
        check("9", true);
        check(&"a".repeat(128), true);
        check(&"a".repeat(129), false);
        check("", false);
        check(".mail", false);
        check("-mail", false);
        check("a{b}", false);
        check("a b", false);
        check("a\0", false);
        check("é", false);
    }

    #[test]
    fn a_stored_name_is_never_refused() {
        assert_eq!(QueueName::stored("{odd} name").as_str(), "{odd} name");
        assert_eq!(serde_json::from_str::<Kind>("\"{odd}\"").unwrap().as_str(), "{odd}");
    }
}
