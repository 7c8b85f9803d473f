//! Cursors of lists: where a walk stands, written so that it can be pasted into a URL as it is.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use windlass_core::{Error, Result};

/// Writes a position.
pub(super) fn write(position: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(position)
}

/// Reads what [`write`] wrote.
pub(super) fn read<T>(text: &str, position: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let written = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let refused = || Error::invalid(format!("cursor {text:?} is not one of ours"));
    written.and_then(|written| position(&written)).ok_or_else(refused)
}
