//! Upper bounds of everything a submitter or handler may send. Every input is hostile.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Reason, Result};

/// Sizes in bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Largest payload.
    pub payload_bytes_max: usize,
    /// Largest result.
    pub result_bytes_max: usize,
    /// Longest error text kept of a run; more is cut.
    pub error_bytes_max: usize,
    /// Deepest nesting of a JSON payload in the API.
    pub json_depth_max: usize,
}

/// Most tags on one task.
pub const TAGS_MAX: usize = 32;
/// Most entries in a task's metadata.
pub const METADATA_ENTRIES_MAX: usize = 64;
/// All keys and values of a task's metadata together.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// Longest key of any sort (task id, idempotency, unique, limit).
pub const KEY_BYTES_MAX: usize = 255;
/// Most retries, and most crashes, that may be asked for.
pub const BUDGET_MAX: u32 = 1_000_000;
/// Longest list of entries a task's timeline keeps; see [`crate::history::History`].
pub const HISTORY_ENTRIES_MAX: usize = 1_000;

/// Refuses a key that is empty, too long or holds control characters.
pub fn check_key(what: &str, key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("{what} must have 1 to {KEY_BYTES_MAX} bytes")));
    }
    if key.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} must not hold control characters")));
    }
    Ok(())
}

/// Refuses a value that is too large.
pub fn check_size(what: &str, bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes > bytes_max {
        return Err(Error::invalid(format!(
            "{what} has {bytes} bytes, at most {bytes_max} allowed"
        ))
        .reason_is(Reason::TooLarge));
    }
    Ok(())
}

/// Cuts a text to at most this many bytes, at the edge of a character.
pub fn clip(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_the_edge_of_a_character() {
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("aé", 3), "aé");
    }

    #[test]
    fn an_empty_overlong_or_binary_key_is_refused() {
        assert!(check_key("key", "").is_err());
        assert!(check_key("key", &"k".repeat(256)).is_err());
        assert!(check_key("key", "a\0b").is_err());
        assert!(check_key("key", &"k".repeat(255)).is_ok());
    }
}
