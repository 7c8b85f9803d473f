//! Digests of keys, made as `0003_functions.sql` makes them: SHA-256 is what the server has, too, so that
//! a key is the same whoever submits.

use sha2::{Digest as _, Sha256};
use windlass_core::NewTask;
use windlass_core::unique::{KeyDigest, Unique};

/// The digest of a task's idempotency key, which counts per kind.
pub(super) fn idempotency_digest(kind: &str, key: &str) -> KeyDigest {
    digest(&[b"idempotency", kind.as_bytes(), key.as_bytes()])
}

/// The digest of a task's unique key, which counts per kind.
pub(super) fn unique_digest(task: &NewTask, unique: &Unique) -> KeyDigest {
    let (queue, kind) = (task.queue.as_str().as_bytes(), task.kind.as_str().as_bytes());
    match &unique.key {
        None => digest(&[b"derived", queue, kind, &task.payload]),
        Some(key) => digest(&[b"kind", kind, key.as_bytes()]),
    }
}

/// Sets a schema's locks and notifications apart from others'.
pub(super) fn schema_salt(schema: &str) -> i64 {
    number_of(digest(&[b"schema", schema.as_bytes()]))
}

/// The first bytes of a digest, as a lock has them.
pub(super) fn number_of(digest: KeyDigest) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.0[..8]);
    i64::from_be_bytes(bytes)
}

fn digest(parts: &[&[u8]]) -> KeyDigest {
    let mut hasher = Sha256::new();
    for part in parts {
        // The length first: ("ab", "c") and ("a", "bc") must differ.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize()[..16]);
    KeyDigest(bytes)
}
